//! Speaks to Azure.

pub mod imds;
pub mod provider_id;
