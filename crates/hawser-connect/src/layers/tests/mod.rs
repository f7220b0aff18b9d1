mod crypt;
mod reserve;
