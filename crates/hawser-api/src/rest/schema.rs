//! Schemas of the leaf values that the domain checks itself: sizes, aliases, connection info.

use utoipa::openapi::schema::{
    KnownFormat, ObjectBuilder, OneOfBuilder, Schema, SchemaFormat, SchemaType, Type,
};

/// A size in an answer: whole bytes.
pub fn size() -> Schema {
    ObjectBuilder::new()
        .schema_type(Type::Integer)
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
        .minimum(Some(0))
        .description(Some("Whole bytes."))
        .into()
}

/// A size in a request: whole bytes, or a text with a unit.
pub fn size_text() -> Schema {
    let text = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(r"^\s*[0-9]+(\.[0-9]{1,9})?\s*([KMGTPkmgtp]?[iI]?[bB]?)\s*$"))
        .examples(["10GiB", "500M"]);
    OneOfBuilder::new()
        .item(size())
        .item(text)
        .description(Some("Whole bytes, or a number with a unit such as 10GiB or 500M."))
        .into()
}

/// [`size_text`] where it may be left out.
pub fn optional_size_text() -> Schema {
    let none = ObjectBuilder::new().schema_type(SchemaType::Type(Type::Null));
    OneOfBuilder::new().item(none).item(size_text()).into()
}

/// What one world calls an object.
pub fn alias() -> Schema {
    let scopes = ["native", "csi", "heketi", "docker", "flex", "pv"];
    let scope = ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(scopes))
        .description(Some("Whose name it is."));
    let name = ObjectBuilder::new().schema_type(Type::String).description(Some("The name itself."));
    ObjectBuilder::new()
        .property("scope", scope)
        .required("scope")
        .property("name", name)
        .required("name")
        .into()
}

/// A list of [`alias`]es.
pub fn aliases() -> Schema {
    utoipa::openapi::schema::ArrayBuilder::new().items(utoipa::openapi::RefOr::T(alias())).into()
}

/// How to reach a volume, without secrets; open, because storage systems send many keys.
pub fn connection_info() -> Schema {
    let none = ObjectBuilder::new().schema_type(SchemaType::Type(Type::Null));
    let info = ObjectBuilder::new()
        .property("data", ObjectBuilder::new().schema_type(Type::Object))
        .required("data")
        .additional_properties(Some(utoipa::openapi::schema::AdditionalProperties::FreeForm(true)))
        .description(Some(
            "driver_volume_type, data and the identity the device must have; without secrets.",
        ));
    OneOfBuilder::new().item(none).item(info).into()
}
