//! Ceph's RBD: images of a cluster, mapped through `/sys/bus/rbd`.
//!
//! As kernel 6.12 was seen to do it:
//! - `add_single_major` answers when the image is mapped or refused; monitors that nobody hears are
//!   given up after `mount_timeout`;
//! - the same image can be mapped any number of times, each one a device;
//! - `config_info` shows the text that was written, the key too, to root alone;
//! - `remove_single_major` refuses a device that is open, unless it is told `force`;
//! - a mapping keeps the id of its image, whatever becomes of the name in the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::fake_host::Kernel;
use crate::fake_host::kernel::errno::{EACCES, EBUSY, EINVAL, ENOENT, ENXIO, ETIMEDOUT};
use crate::fake_host::kernel::{Answer, DiskSpec, Lun, Tree, Write};

/// Where the kernel numbers its devices when there is one major number for all.
const MAJOR: u32 = 252;

/// Who maps without a name.
const GUEST: &str = "guest";

/// A cluster, as its clients meet it.
#[derive(Clone, Default)]
pub struct Cluster {
    /// Its id.
    pub fsid: String,
    /// `address:port` of its monitors.
    pub monitors: Vec<String>,
    /// The keys of its users; none at all where it asks for no key.
    pub keys: BTreeMap<String, String>,
    images: BTreeMap<Name, Image>,
}

/// Pool, namespace (may be empty) and image.
type Name = (String, String, String);

#[derive(Clone)]
struct Image {
    id: String,
    lun: Lun,
    snapshots: BTreeSet<String>,
    known_features: bool,
}

#[derive(Default)]
struct Layer {
    clusters: Vec<Cluster>,
    silent: BTreeSet<String>,
}

impl Cluster {
    /// A cluster with one monitor that asks for no key.
    pub fn new(fsid: &str, monitor: &str) -> Self {
        Self { fsid: fsid.into(), monitors: vec![monitor.into()], ..Self::default() }
    }

    /// With a user and his key; from then on every user needs one.
    #[must_use]
    pub fn with_user(mut self, user: &str, key: &str) -> Self {
        self.keys.insert(user.into(), key.into());
        self
    }

    /// With one more address of its monitors.
    #[must_use]
    pub fn with_monitor(mut self, monitor: &str) -> Self {
        self.monitors.push(monitor.into());
        self
    }

    /// With an image, named `pool/image` or `pool/namespace/image`.
    #[must_use]
    pub fn with_image(mut self, name: &str, id: &str, lun: &Lun) -> Self {
        self.insert(name, id, lun);
        self
    }

    fn insert(&mut self, name: &str, id: &str, lun: &Lun) {
        let (id, lun) = (id.into(), lun.clone());
        let image = Image { id, lun, snapshots: BTreeSet::new(), known_features: true };
        self.images.insert(key(name), image);
    }

    /// With a snapshot of an image.
    #[must_use]
    pub fn with_snapshot(mut self, name: &str, snapshot: &str) -> Self {
        self.images.get_mut(&key(name)).expect("an image").snapshots.insert(snapshot.into());
        self
    }

    /// With an image that has features which the kernel does not know.
    #[must_use]
    pub fn with_strange(mut self, name: &str) -> Self {
        self.images.get_mut(&key(name)).expect("an image").known_features = false;
        self
    }
}

fn key(name: &str) -> Name {
    let parts: Vec<&str> = name.split('/').collect();
    match parts.as_slice() {
        [pool, image] => ((*pool).into(), String::new(), (*image).into()),
        [pool, namespace, image] => ((*pool).into(), (*namespace).into(), (*image).into()),
        _ => panic!("{name} is no pool/image"),
    }
}

/// Gives a host the module, and clusters in its network.
pub fn install(kernel: &Kernel, clusters: impl IntoIterator<Item = Cluster>) {
    kernel
        .value("/sys/module/rbd/parameters/single_major", "Y")
        .folder("/sys/bus/rbd/devices")
        .folder("/sys/devices/rbd")
        .on_write("/sys/bus/rbd/add_single_major", |tree, write| add(tree, &write.text()).map(drop))
        .on_write("/sys/bus/rbd/remove_single_major", |tree, write| remove(tree, &write.text()))
        .on_write("/sys/devices/rbd/*/refresh", refresh);
    for name in ["add", "remove", "add_single_major", "remove_single_major"] {
        kernel.file(format!("/sys/bus/rbd/{name}"), "");
    }
    let clusters: Vec<_> = clusters.into_iter().collect();
    kernel.edit(|tree| tree.with::<Layer, _>(|layer, _| layer.clusters = clusters));
}

/// The image of this name was removed, and another made under its name.
pub fn replace_image(kernel: &Kernel, fsid: &str, name: &str, id: &str, lun: &Lun) {
    kernel.edit(|tree| {
        tree.with::<Layer, _>(|layer, _| {
            let cluster = layer.clusters.iter_mut().find(|cluster| cluster.fsid == fsid);
            cluster.expect("a cluster").insert(name, id, lun);
        });
    });
}

/// Nobody hears from this monitor any more.
pub fn silence(kernel: &Kernel, monitor: &str) {
    kernel.edit(|tree| tree.with::<Layer, _>(|layer, _| layer.silent.insert(monitor.into())));
}

/// Somebody else writes to `add_single_major`; the number of the device that he gets.
pub fn map_by_hand(kernel: &Kernel, text: &str) -> Answer<u32> {
    kernel.edit(|tree| add(tree, text))
}

/// Somebody else writes to `remove_single_major`.
pub fn unmap_by_hand(kernel: &Kernel, number: u32) -> Answer<()> {
    kernel.edit(|tree| remove(tree, &number.to_string()))
}

/// One `name=value` of the options.
fn option<'a>(options: &'a str, name: &str) -> Option<&'a str> {
    let words = options.split(',').filter_map(|option| option.split_once('='));
    words.into_iter().find(|(its, _)| *its == name).map(|(_, value)| value)
}

/// `MONITORS OPTIONS POOL IMAGE [SNAPSHOT]`
fn add(tree: &mut Tree, text: &str) -> Answer<u32> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (monitors, options, pool, image, snapshot) = match words.as_slice() {
        [monitors, options, pool, image] => (*monitors, *options, *pool, *image, "-"),
        [monitors, options, pool, image, snapshot] => {
            (*monitors, *options, *pool, *image, *snapshot)
        }
        _ => return Err(EINVAL),
    };
    let cluster = tree.with::<Layer, _>(|layer, _| {
        let heard = |monitor: &&str| !layer.silent.contains(*monitor);
        let asked: Vec<&str> = monitors.split(',').filter(heard).collect();
        let knows = |cluster: &&Cluster| {
            cluster.monitors.iter().any(|monitor| asked.contains(&monitor.as_str()))
        };
        layer.clusters.iter().find(knows).cloned()
    });
    let Some(cluster) = cluster else {
        let seconds = option(options, "mount_timeout").and_then(|text| text.parse().ok());
        tree.takes(Duration::from_secs(seconds.unwrap_or(60)));
        return Err(ETIMEDOUT);
    };
    let user = option(options, "name").unwrap_or(GUEST);
    let known = cluster.keys.get(user).map(String::as_str);
    match (option(options, "secret"), known) {
        _ if cluster.keys.is_empty() => {}
        (None, _) => return Err(EINVAL),
        (Some(key), Some(known)) if key == known => {}
        (Some(_), _) => return Err(EACCES),
    }
    let namespace = option(options, "_pool_ns").unwrap_or_default();
    let name = (pool.to_owned(), namespace.to_owned(), image.to_owned());
    let found = cluster.images.get(&name).ok_or(ENOENT)?;
    if snapshot != "-" && !found.snapshots.contains(snapshot) {
        return Err(ENOENT);
    }
    if !found.known_features {
        return Err(ENXIO);
    }
    let read_only = snapshot != "-" || options.split(',').any(|option| option == "ro");
    let number = show(tree, &cluster.fsid, &name, found, snapshot, text);
    tree.set_read_only(&format!("rbd{number}"), read_only);
    Ok(number)
}

/// Makes the device of a mapping and its files.
fn show(
    tree: &mut Tree,
    fsid: &str,
    (pool, namespace, name): &Name,
    image: &Image,
    snapshot: &str,
    text: &str,
) -> u32 {
    let taken = tree.list("/sys/bus/rbd/devices");
    let free = (0_u32..).find(|number| !taken.contains(&number.to_string()));
    let number = free.expect("there are numbers enough");
    let folder = format!("/sys/devices/rbd/{number}");
    tree.value(format!("{folder}/pool"), pool)
        .value(format!("{folder}/pool_ns"), namespace)
        .value(format!("{folder}/name"), name)
        .value(format!("{folder}/image_id"), &image.id)
        .value(format!("{folder}/current_snap"), snapshot)
        .value(format!("{folder}/cluster_fsid"), fsid)
        .value(format!("{folder}/size"), image.lun.size())
        .value(format!("{folder}/major"), MAJOR)
        .value(format!("{folder}/minor"), number << 4)
        .file_mode(format!("{folder}/config_info"), format!("{text}\n"), 0o400)
        .file(format!("{folder}/refresh"), "")
        .link(format!("/sys/bus/rbd/devices/{number}"), format!("../../../devices/rbd/{number}"));
    let spec = DiskSpec::new(format!("rbd{number}"), &image.lun).number((MAJOR, number << 4));
    tree.add_disk(spec);
    number
}

/// `NUMBER [force]`
fn remove(tree: &mut Tree, text: &str) -> Answer<()> {
    let (number, force) = match text.split_once(' ') {
        Some((number, "force")) => (number, true),
        Some(_) => return Err(EINVAL),
        None => (text, false),
    };
    let number: u32 = number.parse().map_err(|_| EINVAL)?;
    let disk = format!("rbd{number}");
    if !tree.disk_names().contains(&disk) {
        return Err(ENOENT);
    }
    if !force && tree.is_open(&disk) {
        return Err(EBUSY);
    }
    tree.remove_disk(&disk);
    tree.remove(format!("/sys/bus/rbd/devices/{number}"));
    tree.remove(format!("/sys/devices/rbd/{number}"));
    tree.emit();
    Ok(())
}

/// The kernel asks the cluster for the size: the image's is there at once, the disk's a moment later.
fn refresh(tree: &mut Tree, write: &Write<'_>) -> Answer<()> {
    let disk = format!("rbd{}", write.above(0));
    let size = tree.lun_of(&disk).ok_or(ENOENT)?.size();
    tree.value(write.place.with_file_name("size"), size);
    tree.later(1, move |tree| {
        if tree.disk_names().contains(&disk) {
            tree.set_size(&disk, size);
        }
    });
    Ok(())
}
