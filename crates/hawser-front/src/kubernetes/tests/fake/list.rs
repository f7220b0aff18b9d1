//! Reading: one object, or a list in pages.

use serde_json::{Value, json};

use super::answer::Refusal;
use super::call::{Call, Target};
use super::select::Selection;
use super::state::State;

impl State {
    pub(super) fn get(&self, target: &Target) -> Result<Value, Refusal> {
        let name = target.name.as_deref().unwrap_or_default();
        let found = self.objects.get(&target.key(name));
        found.cloned().ok_or_else(|| Refusal::not_found(target, name))
    }

    pub(super) fn list(&mut self, target: &Target, call: &Call) -> Result<Value, Refusal> {
        let (mut items, revision) = match call.option("continue") {
            "" => {
                let selection = Selection::new(target, call)?;
                (self.select(&selection), self.revision)
            }
            token => {
                let gone = || Refusal::expired("The provided continue parameter is too old");
                self.pages.remove(token).ok_or_else(gone)?
            }
        };
        let mut metadata = json!({ "resourceVersion": revision.to_string() });
        let limit = call.option("limit").parse().unwrap_or(0);
        if limit > 0 && items.len() > limit {
            let rest = items.split_off(limit);
            let token = format!("page-{}", self.number());
            metadata["continue"] = json!(token);
            metadata["remainingItemCount"] = json!(rest.len());
            self.pages.insert(token, (rest, revision));
        }
        let view = call.view(target);
        let items: Vec<_> = items
            .into_iter()
            .map(|object| {
                let mut seen = view.object(object);
                // Within a list of a type of its own the server does not repeat the type.
                if let (true, Some(fields)) = (target.is_builtin(), seen.as_object_mut()) {
                    fields.remove("kind");
                    fields.remove("apiVersion");
                }
                seen
            })
            .collect();
        let (kind, api_version) = match view.metadata_only {
            true => ("PartialObjectMetadata".to_owned(), "meta.k8s.io/v1".to_owned()),
            false => (self.kind(target), view.api_version),
        };
        Ok(json!({
            "kind": format!("{kind}List"),
            "apiVersion": api_version,
            "metadata": metadata,
            "items": items,
        }))
    }

    /// All objects of a selection, as they are now.
    pub(super) fn select(&self, selection: &Selection) -> Vec<Value> {
        let covered = self.objects.iter().filter(|(key, _)| selection.covers(key));
        covered.map(|(_, object)| object).filter(|object| selection.fits(object)).cloned().collect()
    }

    /// The kind of a resource: what is known of it, or what its objects say.
    pub(super) fn kind(&self, target: &Target) -> String {
        if let Some(known) = target.known() {
            return known.kind.to_owned();
        }
        let of_it = self
            .objects
            .iter()
            .find(|(key, _)| key.group == target.group && key.plural == target.plural);
        of_it.and_then(|(_, object)| object["kind"].as_str()).unwrap_or("Unknown").to_owned()
    }
}
