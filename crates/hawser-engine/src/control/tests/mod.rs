//! Tests of the control half's own parts; its behaviour as a whole is tested in `hawser-live`.

mod access;
mod drafts;
mod groups;
mod records;
