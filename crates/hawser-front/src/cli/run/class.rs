//! `hawser class …` and `hawser node …`

use hawser_api::rest::classes::{CapacityView, ClassView};
use hawser_api::rest::list::ListView;
use hawser_api::rest::nodes::NodeView;
use hawser_core::class::{Ability, Capacity, Class};
use hawser_core::name::ClassName;
use hawser_core::place::Place;
use hawser_core::port::Control;
use hawser_core::{Error, Kind};
use serde::Serialize;

use super::super::args::node::{ClassCommand, NodeArgs, NodeCommand};
use super::super::context::Context;
use super::super::error::CliError;
use super::super::human;
use super::super::output::Format;
use super::super::parse;
use super::super::table::{Table, details};

/// A class together with its room.
#[derive(Serialize)]
struct ClassWithCapacity {
    #[serde(flatten)]
    class: ClassView,
    capacity: Option<CapacityView>,
}

pub(super) async fn run(command: ClassCommand, context: &Context<'_>) -> Result<(), CliError> {
    let control = context.control().await?;
    match command {
        ClassCommand::List => list(&*control, context).await,
        ClassCommand::Show { name, place } => {
            show(&*control, name, parse::place(place).as_ref(), context).await
        }
    }
}

async fn list(control: &dyn Control, context: &Context<'_>) -> Result<(), CliError> {
    let classes = control.list_classes().await?;
    let names: Vec<String> = classes.iter().map(|class| class.name.to_string()).collect();
    let mut table =
        Table::new(["NAME", "PROVIDER", "DEFAULT", "AVAILABLE", "TOTAL", "CAN"]).right(3).right(4);
    if context.format == Format::Table && !context.quiet {
        for class in &classes {
            // One class whose storage is away must not hide the others.
            let room = capacity(control, class, None).await.unwrap_or(None);
            let size = |of: fn(&Capacity) -> hawser_core::ByteSize| {
                room.as_ref().map_or_else(|| "-".to_owned(), |room| human::size(of(room)))
            };
            table.row([
                class.name.to_string(),
                class.provider.clone(),
                human::yes(class.default).to_owned(),
                size(|room| room.available),
                size(|room| room.total),
                human::or_dash(abilities(class)),
            ]);
        }
    }
    context.list(&ListView::<ClassView>::whole(classes), || names, || table.render())
}

async fn capacity(
    control: &dyn Control,
    class: &Class,
    place: Option<&Place>,
) -> Result<Option<Capacity>, CliError> {
    let can = |ability| class.abilities.contains(&ability);
    let tells = can(Ability::Capacity) || (place.is_some() && can(Ability::Placement));
    if !tells {
        return Ok(None);
    }
    Ok(Some(control.capacity(&class.name, place).await?))
}

async fn show(
    control: &dyn Control,
    name: ClassName,
    place: Option<&Place>,
    context: &Context<'_>,
) -> Result<(), CliError> {
    let found = control.list_classes().await?.into_iter().find(|class| class.name == name);
    let class =
        found.ok_or_else(|| Error::new(Kind::NotFound, format!("there is no class {name}")))?;
    let room = capacity(control, &class, place).await?;
    let settings = class.settings.iter().map(|(k, v)| (k.as_str(), v.as_str()));
    let mut pairs = vec![
        ("name", class.name.to_string()),
        ("provider", class.provider.clone()),
        ("default", human::yes(class.default).to_owned()),
        ("can", human::or_dash(abilities(&class))),
        ("settings", human::pairs(settings)),
    ];
    if let Some(room) = &room {
        pairs.extend([
            ("total", human::size(room.total)),
            ("available", human::size(room.available)),
            ("promised", human::size(room.promised)),
            ("used", human::size(room.used)),
            ("largest volume", human::size(room.largest_volume)),
        ]);
    }
    let text = details(&pairs);
    let view = ClassWithCapacity { class: class.into(), capacity: room.map(Into::into) };
    context.show(&view, || text)
}

fn abilities(class: &Class) -> String {
    let words: Vec<_> = class.abilities.iter().map(|ability| word(*ability)).collect();
    words.join(",")
}

fn word(ability: Ability) -> &'static str {
    match ability {
        Ability::Snapshots => "snapshots",
        Ability::Clones => "clones",
        Ability::Expand => "expand",
        Ability::Capacity => "capacity",
        Ability::Inventory => "inventory",
        Ability::Backup => "backup",
        Ability::Groups => "groups",
        Ability::Placement => "placement",
        Ability::Blanks => "blanks",
    }
}

pub(super) async fn run_node(args: NodeArgs, context: &Context<'_>) -> Result<(), CliError> {
    let Some(NodeCommand::List) = args.command else {
        // The program itself runs the node half and never comes here.
        let message = "this build cannot be a node";
        return Err(hawser_core::Error::new(hawser_core::Kind::Unsupported, message).into());
    };
    let nodes = context.control().await?.list_nodes().await?;
    let names: Vec<String> = nodes.iter().map(|node| node.id.to_string()).collect();
    let mut table = Table::new(["ID", "ADDRESS", "PRIVILEGED", "TOPOLOGY", "LAST SEEN"]);
    for node in &nodes {
        let address = node.properties.get("ip").and_then(|ip| ip.as_str()).unwrap_or("-");
        let topology = node.topology.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        table.row([
            node.id.to_string(),
            address.to_owned(),
            human::yes(node.privileged).to_owned(),
            human::pairs(topology),
            format!("{} ago", human::age(context.now, node.last_seen)),
        ]);
    }
    context.list(&ListView::<NodeView>::whole(nodes), || names, || table.render())
}
