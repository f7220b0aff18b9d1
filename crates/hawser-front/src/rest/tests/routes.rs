//! Every route, judged by the served document.

use http::StatusCode;
use serde_json::{Value, json};

use super::book::Book;
use super::rig::Rig;

#[tokio::test]
async fn every_operation_answers_as_the_document_says() {
    let rig = Rig::start();
    let mut book = Book::open(&rig).await;

    walk_volumes(&rig, &mut book).await;
    walk_publications(&rig, &mut book).await;
    walk_snapshots(&rig, &mut book).await;
    walk_groups(&rig, &mut book).await;
    walk_operations(&rig, &mut book).await;
    walk_service(&rig, &mut book).await;
    // Every operation refuses what it does not know.
    for (method, template) in book.operations() {
        let path =
            template.replace("{id}", "op-01k5zzzzzzzzzzzzzzzzzzzzzz").replace(['{', '}'], "");
        let answer = book.call(&rig, &method, &format!("{path}?nonsense=1"), None).await;
        assert!(answer.status.is_client_error(), "{method} {template}: {}", answer.status);
    }

    book.assert_all_seen();
    rig.stop().await;
}

async fn walk_volumes(rig: &Rig, book: &mut Book) {
    let body = json!({
        "name": "data", "size": "1GiB", "class": "default", "sharing": "single_writer",
        "access": { "mode": "filesystem", "fs": "xfs" }, "labels": { "env": "a=b,c" },
        "parameters": { "k": "v" },
    });
    book.validate(&book.schema("CreateVolume"), &body, "the request");
    let made = book.call(rig, "POST", "/v1/volumes", Some(body.clone())).await;
    assert_eq!((made.status, made.header("hawser-change")), (StatusCode::CREATED, "made"));
    assert_eq!(made.json()["size"], json!(1 << 30));
    assert_eq!(made.json()["name"], "data");
    let again = book.call(rig, "POST", "/v1/volumes", Some(body)).await;
    assert_eq!((again.status, again.header("hawser-change")), (StatusCode::OK, "already"));
    let other = json!({ "name": "data", "size": 5 });
    let refused = book.call(rig, "POST", "/v1/volumes", Some(other)).await;
    assert_eq!(
        (refused.status, refused.json()["kind"].as_str()),
        (StatusCode::CONFLICT, Some("exists"))
    );
    let slow = json!({ "name": "slow", "size": 1, "source": { "volume": "data" } });
    let slow = book.call(rig, "POST", "/v1/volumes?wait=0", Some(slow)).await;
    assert_eq!(slow.status, StatusCode::ACCEPTED);
    let id = slow.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(slow.header("location"), format!("/v1/operations/{id}"));
    book.call(rig, "GET", slow.header("location"), None).await;

    let by_id = format!("/v1/volumes/{}", made.json()["id"].as_str().unwrap());
    assert_eq!(book.call(rig, "GET", &by_id, None).await.json(), made.json());
    let listed = book.call(rig, "GET", "/v1/volumes?label=env%3Da%3Db,c&class=default", None).await;
    assert_eq!(listed.json()["items"].as_array().unwrap().len(), 1);
    let first = book.call(rig, "GET", "/v1/volumes?limit=1", None).await.json();
    let token = first["next_page_token"].as_str().unwrap();
    let path = format!("/v1/volumes?limit=1&page_token={token}");
    let second = book.call(rig, "GET", &path, None).await.json();
    assert_eq!(second["items"][0]["source"], json!({ "volume": made.json()["id"] }));
    assert_eq!(second.get("next_page_token"), None);

    let larger = json!({ "size": "2GiB" });
    let path = "/v1/volumes/data/expand";
    let grown = book.call(rig, "POST", path, Some(larger)).await;
    assert_eq!((grown.status, &grown.json()["size"]), (StatusCode::OK, &json!(2_u64 << 30)));
    let refused = book.call(rig, "POST", path, Some(json!({ "size": 1 }))).await;
    assert_eq!(refused.json()["kind"], "out_of_range");
    let patch = json!({ "labels": { "env": null, "tier": "db" } });
    let patched = book.call(rig, "PATCH", "/v1/volumes/data?wait=5s", Some(patch)).await;
    assert_eq!(patched.json()["labels"], json!({ "tier": "db" }));
    assert_eq!(book.call(rig, "GET", "/v1/volumes/data/health", None).await.status, StatusCode::OK);
    let gone = book.call(rig, "DELETE", "/v1/volumes/slow", None).await;
    assert_eq!((gone.status, gone.header("hawser-change")), (StatusCode::NO_CONTENT, "made"));
    let gone = book.call(rig, "DELETE", "/v1/volumes/slow", None).await;
    assert_eq!((gone.status, gone.header("hawser-change")), (StatusCode::NO_CONTENT, "already"));
    let pending = book.call(rig, "DELETE", "/v1/volumes/data?wait=0", None).await;
    assert_eq!(pending.status, StatusCode::ACCEPTED);
    let missing = book.call(rig, "GET", "/v1/volumes/slow", None).await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
}

async fn walk_publications(rig: &Rig, book: &mut Book) {
    let path = "/v1/volumes/data/publications/n1";
    assert_eq!(book.call(rig, "GET", path, None).await.status, StatusCode::NOT_FOUND);
    let read_only = Some(json!({ "read_only": true }));
    let made = book.call(rig, "PUT", path, read_only).await;
    assert_eq!((made.status, &made.json()["read_only"]), (StatusCode::CREATED, &json!(true)));
    assert!(!String::from_utf8_lossy(&made.body).contains("hunter2"), "a secret went out");
    assert_eq!(made.json()["info"]["data"]["target_iqn"], "iqn.x");
    assert_eq!(book.call(rig, "PUT", path, None).await.status, StatusCode::OK);
    assert_eq!(book.call(rig, "GET", path, None).await.json(), made.json());
    let held = book.call(rig, "DELETE", "/v1/volumes/data", None).await;
    assert_eq!(held.status, StatusCode::PRECONDITION_FAILED);
    assert_eq!(book.call(rig, "DELETE", path, None).await.status, StatusCode::NO_CONTENT);

    let path = "/v1/volumes/data/attachments/n1";
    let attached = book.call(rig, "PUT", path, None).await;
    assert_eq!(attached.json()["device"], "/dev/loop3");
    assert_eq!(
        book.call(rig, "PUT", &format!("{path}?wait=0"), None).await.status,
        StatusCode::ACCEPTED
    );
    assert_eq!(book.call(rig, "DELETE", path, None).await.status, StatusCode::NO_CONTENT);

    let path = "/v1/volumes/data/mounts";
    let body = json!({ "node": "n1", "target": "/srv/d", "flags": ["noatime"] });
    let mounted = book.call(rig, "POST", path, Some(body)).await;
    assert_eq!(mounted.json()["mounts"][0]["target"], "/srv/d");
    assert_eq!(book.call(rig, "GET", "/v1/volumes/data", None).await.status, StatusCode::OK);
    let missing = book.call(rig, "DELETE", path, None).await;
    assert_eq!(missing.status, StatusCode::BAD_REQUEST);
    let query = format!("{path}?node=n1&target=%2Fsrv%2Fd");
    assert_eq!(book.call(rig, "DELETE", &query, None).await.status, StatusCode::NO_CONTENT);
}

async fn walk_snapshots(rig: &Rig, book: &mut Book) {
    let body = json!({ "name": "s1", "volume": "data", "labels": {} });
    book.validate(&book.schema("CreateSnapshot"), &body, "the request");
    let made = book.call(rig, "POST", "/v1/snapshots", Some(body.clone())).await;
    assert_eq!(made.status, StatusCode::CREATED);
    assert_eq!(book.call(rig, "POST", "/v1/snapshots", Some(body)).await.status, StatusCode::OK);
    assert_eq!(book.call(rig, "GET", "/v1/snapshots/s1", None).await.json(), made.json());
    let listed = book.call(rig, "GET", "/v1/snapshots?volume=data", None).await;
    assert_eq!(listed.json()["items"], json!([made.json()]));
    let missing = book.call(rig, "GET", "/v1/snapshots?volume=none", None).await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
    let gone = book.call(rig, "DELETE", "/v1/snapshots/s1", None).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
}

async fn walk_groups(rig: &Rig, book: &mut Book) {
    let body = json!({ "name": "g1", "volumes": ["data"], "labels": { "why": "upgrade" } });
    book.validate(&book.schema("CreateGroup"), &body, "the request");
    let made = book.call(rig, "POST", "/v1/groups", Some(body.clone())).await;
    assert_eq!((made.status, made.header("hawser-change")), (StatusCode::CREATED, "made"));
    assert_eq!(made.json()["snapshots"][0]["group"], made.json()["id"]);
    let again = book.call(rig, "POST", "/v1/groups", Some(body)).await;
    assert_eq!((again.status, again.header("hawser-change")), (StatusCode::OK, "already"));
    let slow = json!({ "name": "g2", "volumes": ["data"] });
    let slow = book.call(rig, "POST", "/v1/groups?wait=0", Some(slow)).await;
    assert_eq!(slow.status, StatusCode::ACCEPTED);
    for (body, status) in [
        (json!({ "name": "g3", "volumes": ["data", "none"] }), StatusCode::NOT_FOUND),
        (json!({ "name": "g3", "volumes": "data" }), StatusCode::BAD_REQUEST),
        (json!({ "name": "a/b", "volumes": ["data"] }), StatusCode::BAD_REQUEST),
    ] {
        let refused = book.call(rig, "POST", "/v1/groups", Some(body.clone())).await;
        assert_eq!(refused.status, status, "{body}");
    }
    let published = "/v1/volumes/data/publications/n1";
    book.call(rig, "PUT", published, None).await;
    let in_use = json!({ "name": "g3", "volumes": ["data"] });
    let refused = book.call(rig, "POST", "/v1/groups", Some(in_use)).await;
    assert_eq!(refused.status, StatusCode::PRECONDITION_FAILED);
    book.call(rig, "DELETE", published, None).await;
    assert_eq!(book.call(rig, "GET", "/v1/groups/g1", None).await.json(), made.json());
    let missing = book.call(rig, "GET", "/v1/groups/none", None).await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
    for name in ["g1", "g2", "g1"] {
        let gone = book.call(rig, "DELETE", &format!("/v1/groups/{name}"), None).await;
        assert_eq!(gone.status, StatusCode::NO_CONTENT);
    }
}

async fn walk_operations(rig: &Rig, book: &mut Book) {
    let running = book.call(rig, "GET", "/v1/operations?state=running", None).await.json();
    let id = running["items"][0]["id"].as_str().unwrap().to_owned();
    let one = book.call(rig, "GET", &format!("/v1/operations/{id}?wait=10ms"), None).await;
    assert_eq!(one.json(), running["items"][0]);
    let path = format!("/v1/operations/{id}/cancel");
    let cancelled = book.call(rig, "POST", &path, None).await;
    assert_eq!(cancelled.json()["error"]["outcome"], "rolled_back");
    for path in [format!("/v1/operations/{id}"), "/v1/operations?state=failed".to_owned()] {
        let shown = book.call(rig, "GET", &path, None).await.body;
        let text = String::from_utf8_lossy(&shown);
        assert!(text.contains(&format!("the details under {id}")), "{text}");
        assert!(!text.contains("the secret of the pool"), "{text}");
    }
    let late = book.call(rig, "POST", &path, None).await;
    assert_eq!(late.status, StatusCode::PRECONDITION_FAILED);
    let subject = running["items"][0]["subject"].as_str().unwrap();
    let listed = book.call(rig, "GET", &format!("/v1/operations?subject={subject}"), None).await;
    assert!(!listed.json()["items"].as_array().unwrap().is_empty());
    let bad = book.call(rig, "GET", "/v1/operations?state=lost", None).await;
    assert_eq!(bad.status, StatusCode::BAD_REQUEST);
}

async fn walk_service(rig: &Rig, book: &mut Book) {
    for path in [
        "/v1/classes",
        "/v1/classes/default/capacity",
        "/v1/classes/default/capacity?place=node%3Dn1&place=zone%3Db",
        "/v1/nodes",
        "/v1/doctor",
        "/v1/openapi.json",
        "/healthz",
        "/readyz",
    ] {
        assert_eq!(book.call(rig, "GET", path, None).await.status, StatusCode::OK, "{path}");
    }
    let fixed = book.call(rig, "POST", "/v1/doctor?fix=true", None).await.json();
    assert_eq!(fixed["items"][1]["repair"], json!({ "result": "failed", "reason": "in use" }));
    rig.control.set_ready(false);
    let not_yet = book.call(rig, "GET", "/readyz", None).await;
    assert_eq!(not_yet.status, StatusCode::SERVICE_UNAVAILABLE);
    rig.control.set_ready(true);

    let text = book.call(rig, "GET", "/metrics", None).await.body;
    let text = String::from_utf8(text.to_vec()).unwrap();
    for line in [
        "hawser_http_requests_total{route=\"/v1/volumes\",method=\"POST\",status=\"201\"} 1",
        "hawser_http_request_duration_seconds_bucket{le=\"0.001\",route=\"/v1/nodes\",method=\"GET\"}",
        "hawser_operations_total{kind=\"create_volume\",result=\"succeeded\"}",
        "hawser_volumes 42",
        "hawser_build_info{version=\"1.2.3\"} 1",
        "process_start_time_seconds ",
    ] {
        assert!(text.contains(line), "no {line} in\n{text}");
    }
    let event = follow_one(rig).await;
    book.judge("GET", "/v1/events", &event.0);
    book.validate(&book.schema("Event"), &event.1, "the event");
}

/// The head and the first event of the stream; the rest never ends.
async fn follow_one(rig: &Rig) -> (super::rig::Answered, Value) {
    use http_body_util::BodyExt;

    let stream = tokio::net::UnixStream::connect(&rig.socket).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    let driver = tokio::spawn(connection);
    let request = http::Request::get("/v1/events").header("host", "h").header("last-event-id", 0);
    let request = request.body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
    let (head, mut body) = sender.send_request(request).await.unwrap().into_parts();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    driver.abort();
    let text = String::from_utf8(first.to_vec()).unwrap();
    assert!(text.starts_with("id: 1\nevent: volume_changed\ndata: {"), "{text}");
    let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let answer =
        super::rig::Answered { status: head.status, headers: head.headers, body: first.clone() };
    (answer, serde_json::from_str(data).unwrap())
}
