//! What the log says: once per request, with the names that find it again.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::json;

use super::rig::Rig;
use crate::logged::keep;

#[tokio::test]
async fn each_outcome_is_logged_once_with_request_volume_and_cause() {
    let lines = keep();
    let rig = Rig::start();
    let create = async |name: &str, id: &str| {
        let body = Full::new(Bytes::from(json!({ "name": name, "size": 1 }).to_string()));
        let request = Request::post("/v1/volumes")
            .header("content-type", "application/json")
            .header("x-request-id", id);
        rig.send(request.body(body).unwrap()).await
    };

    create("internal", "r-internal").await;
    let made = create("data", "r-made").await.json();
    create("..", "r-refused").await;

    let internal = lines.with("request.id=r-internal");
    assert_eq!(internal.len(), 1, "{internal:?}");
    assert!(internal[0].contains("ERROR") && internal[0].contains("the secret of the pool"));
    let made_lines = lines.with("request.id=r-made");
    assert_eq!(made_lines.len(), 1, "{made_lines:?}");
    let id = made["id"].as_str().unwrap();
    for part in [&*format!("volume.id=\"{id}\""), "http.route=/v1/volumes", "http.method=POST"] {
        assert!(made_lines[0].contains(part), "no {part} in {}", made_lines[0]);
    }
    let refused = lines.with("request.id=r-refused");
    assert!(refused.len() == 1 && refused[0].contains(" INFO "), "{refused:?}");
    rig.stop().await;
}
