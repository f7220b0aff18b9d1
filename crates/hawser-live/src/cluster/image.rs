//! Container images, made here from single files: nothing is pulled.
//!
//! An image is a tar in the layout of the Open Container Initiative, with one layer. Pods name it
//! with `imagePullPolicy: Never`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::error::{Attempt, Result};
use super::program::{of_machine, run};

/// How long packing may take.
const PACK_LIMIT: Duration = Duration::from_secs(120);

/// What every container finds its programs by.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// An image to be made.
#[derive(Clone, Debug)]
pub struct Image {
    name: String,
    files: Vec<(PathBuf, String)>,
    links: Vec<(String, String)>,
    folders: Vec<String>,
    entrypoint: Vec<String>,
}

/// An image with these files, each with its place in there; it starts with this command.
pub fn image(name: &str, files: &[(&Path, &str)], entrypoint: &[&str]) -> Image {
    Image {
        name: name.to_owned(),
        files: files.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect(),
        links: Vec::new(),
        folders: ["/tmp", "/etc", "/dev", "/proc", "/sys"].map(str::to_owned).to_vec(),
        entrypoint: entrypoint.iter().map(|word| (*word).to_owned()).collect(),
    }
}

impl Image {
    /// The name that a pod asks for.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a symbolic link.
    pub fn link(mut self, target: &str, place: &str) -> Self {
        self.links.push((target.to_owned(), place.to_owned()));
        self
    }

    /// Adds an empty folder, as for a mount.
    pub fn folder(mut self, place: &str) -> Self {
        self.folders.push(place.to_owned());
        self
    }

    /// Adds a program of this machine and the shared libraries that it needs, each in the place that
    /// it has here.
    pub fn program(mut self, program: &Path, place: &str) -> Result<Self> {
        self.files.push((program.to_owned(), place.to_owned()));
        let what = format!("listing the libraries of {}", program.display());
        let mut ldd = of_machine("ldd");
        // A static program has none, which ldd takes for a failure.
        let said = run(&what, ldd.arg(program), PACK_LIMIT).unwrap_or_default();
        for library in libraries(&said) {
            let known = self.files.iter().any(|(_, place)| Path::new(place) == library);
            if !known {
                self.files.push((library.clone(), library.display().to_string()));
            }
        }
        Ok(self)
    }

    /// Makes it: `FILE.tar` in the folder.
    pub(super) fn pack(&self, folder: &Path, file: &str) -> Result<PathBuf> {
        let work = tempfile::Builder::new().prefix("image-").tempdir_in(folder);
        let work = work.attempt(|| format!("making a folder in {}", folder.display()))?;
        let (root, layout) = (work.path().join("root"), work.path().join("layout"));
        let blobs = layout.join("blobs/sha256");
        for path in [&root, &blobs] {
            fs::create_dir_all(path).attempt(|| format!("making {}", path.display()))?;
        }
        self.fill(&root)?;
        let layer = work.path().join("layer.tar");
        run("packing a layer", &mut tar(&root, &layer), PACK_LIMIT)?;
        let bytes = fs::read(&layer).attempt(|| format!("reading {}", layer.display()))?;
        let add = |kind: &str, bytes: &[u8]| -> Result<Value> {
            let digest = digest(bytes);
            let path = blobs.join(&digest);
            fs::write(&path, bytes).attempt(|| format!("writing {}", path.display()))?;
            let kind = format!("application/vnd.oci.image.{kind}");
            Ok(
                json!({ "mediaType": kind, "digest": format!("sha256:{digest}"), "size": bytes.len() }),
            )
        };
        let layer = add("layer.v1.tar", &bytes)?;
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": { "Entrypoint": self.entrypoint, "Env": [PATH] },
            "rootfs": { "type": "layers", "diff_ids": [layer["digest"]] },
        });
        let config = add("config.v1+json", config.to_string().as_bytes())?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config,
            "layers": [layer],
        });
        let mut manifest = add("manifest.v1+json", manifest.to_string().as_bytes())?;
        manifest["annotations"] = json!({ "io.containerd.image.name": self.name });
        for (name, value) in [
            ("oci-layout", json!({ "imageLayoutVersion": "1.0.0" })),
            ("index.json", json!({ "schemaVersion": 2, "manifests": [manifest] })),
        ] {
            let path = layout.join(name);
            fs::write(&path, value.to_string())
                .attempt(|| format!("writing {}", path.display()))?;
        }
        let packed = folder.join(format!("{file}.tar"));
        run("packing an image", &mut tar(&layout, &packed), PACK_LIMIT)?;
        Ok(packed)
    }

    /// Lays out what containers will see.
    fn fill(&self, root: &Path) -> Result<()> {
        let inside = |place: &str| root.join(place.trim_start_matches('/'));
        let make =
            |path: &Path| fs::create_dir_all(path).attempt(|| format!("making {}", path.display()));
        for folder in &self.folders {
            make(&inside(folder))?;
        }
        for (from, place) in &self.files {
            let to = inside(place);
            make(to.parent().unwrap_or(root))?;
            fs::copy(from, &to).attempt(|| format!("copying {} to an image", from.display()))?;
        }
        for (target, place) in &self.links {
            let to = inside(place);
            make(to.parent().unwrap_or(root))?;
            symlink(target, &to).attempt(|| format!("making the link {place} in an image"))?;
        }
        let tmp = root.join("tmp");
        fs::set_permissions(&tmp, fs::Permissions::from_mode(0o1777))
            .attempt(|| format!("opening {} to all", tmp.display()))
    }
}

/// The same bytes for the same files.
fn tar(folder: &Path, file: &Path) -> Command {
    let mut command = of_machine("tar");
    command.args(["--create", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    command.arg("--mtime=@0").arg("--file").arg(file).arg("--directory").arg(folder).arg(".");
    command
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// This machine's processor, as images call it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The files that `ldd` names: libraries with their place, and the loader.
fn libraries(said: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let place = line.split(" => ").last()?.split_whitespace().next()?;
        place.starts_with('/').then(|| PathBuf::from(place))
    };
    said.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_of_a_program_are_those_with_a_place() {
        let said = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1e)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f1e)\n";
        let wanted = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(libraries(said), wanted.map(PathBuf::from));
        assert!(libraries("\tnot a dynamic executable\n").is_empty());
    }

    #[test]
    fn an_image_is_named_in_its_index_and_every_blob_is_what_its_name_says() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("words");
        fs::write(&file, "words").unwrap();
        let image = image("localhost/words:1", &[(&file, "/etc/words")], &["/bin/cat"]);
        let image = image.link("words", "/etc/more");

        let packed = image.pack(folder.path(), "words").unwrap();

        let out = folder.path().join("out");
        fs::create_dir(&out).unwrap();
        let mut untar = of_machine("tar");
        untar.arg("--extract").arg("--file").arg(&packed).arg("--directory").arg(&out);
        run("unpacking", &mut untar, PACK_LIMIT).unwrap();
        let index: Value =
            serde_json::from_slice(&fs::read(out.join("index.json")).unwrap()).unwrap();
        let name = &index["manifests"][0]["annotations"]["io.containerd.image.name"];
        assert_eq!(name, "localhost/words:1");
        let blobs: Vec<_> = fs::read_dir(out.join("blobs/sha256")).unwrap().flatten().collect();
        assert_eq!(blobs.len(), 3);
        for blob in blobs {
            let name = blob.file_name().to_string_lossy().into_owned();
            assert_eq!(name, digest(&fs::read(blob.path()).unwrap()));
        }
    }
}
