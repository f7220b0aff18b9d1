//! Lists as the protocol wants them: all at once, or so many and a token.

use hawser_core::page::{LARGEST_PAGE, Page, PageRequest};
use hawser_core::{Error, Kind, Result};

use super::error::{CsiError, cut};

/// Which part of a list is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    most: Option<usize>,
    token: Option<String>,
}

impl Wanted {
    /// Reads what a request says; 0 entries are all of them. `Kind::Invalid` for less.
    pub(super) fn read(max_entries: i32, starting_token: &str) -> Result<Self, CsiError> {
        let most = usize::try_from(max_entries)
            .map_err(|_| CsiError::Negative { field: "max_entries", value: max_entries.into() })?;
        Ok(Self {
            most: (most > 0).then_some(most),
            token: (!starting_token.is_empty()).then(|| starting_token.to_owned()),
        })
    }

    /// Collects what is wanted of a list, leaving out what `keep` refuses, and the token of the rest
    /// where there is one. A token of another list is `Kind::Busy`: the caller begins again.
    pub(super) async fn collect<T, F>(
        self,
        list: impl Fn(PageRequest) -> F,
        keep: impl Fn(&T) -> bool,
    ) -> Result<(Vec<T>, Option<String>)>
    where
        F: Future<Output = Result<Page<T>>>,
    {
        let mut items = Vec::new();
        let mut token = self.token.clone();
        loop {
            let left = self.most.map_or(LARGEST_PAGE, |most| most - items.len());
            let limit = left.min(LARGEST_PAGE);
            let page = PageRequest { limit, token: token.clone() };
            let found = list(page).await.map_err(|error| self.explain(error))?;
            items.extend(found.items.into_iter().filter(&keep));
            token = found.next;
            if token.is_none() || self.most.is_some_and(|most| items.len() >= most) {
                break;
            }
        }
        let more = match &token {
            Some(next) => any(&list, &keep, next.clone()).await?,
            None => false,
        };
        Ok((items, token.filter(|_| more)))
    }

    fn explain(&self, error: Error) -> Error {
        match &self.token {
            Some(token) if error.kind() == Kind::Invalid => {
                CsiError::BadToken { token: cut(token) }.into()
            }
            Some(_) | None => error,
        }
    }
}

/// Whether anything is left: a token that leads to nothing is not given out.
async fn any<T, F>(
    list: &impl Fn(PageRequest) -> F,
    keep: &impl Fn(&T) -> bool,
    token: String,
) -> Result<bool>
where
    F: Future<Output = Result<Page<T>>>,
{
    let mut page = PageRequest { limit: 1, token: Some(token) };
    loop {
        let found = list(page.clone()).await?;
        if found.items.iter().any(keep) {
            return Ok(true);
        }
        match found.next {
            Some(next) => page = PageRequest { limit: LARGEST_PAGE, token: Some(next) },
            None => return Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers below `end`; a token is the number before.
    async fn numbers(end: usize, page: PageRequest) -> Result<Page<usize>> {
        let start = match &page.token {
            None => 0,
            Some(token) => {
                token.parse::<usize>().map_err(|_| Error::new(Kind::Invalid, "no number"))? + 1
            }
        };
        let items: Vec<_> = (start..end).take(page.limit()).collect();
        // As the engine does it: a token although nothing may follow.
        let next = items.last().filter(|_| items.len() == page.limit()).map(ToString::to_string);
        Ok(Page { items, next })
    }

    async fn collect(end: usize, most: i32, token: &str) -> Result<(Vec<usize>, Option<String>)> {
        let wanted = Wanted::read(most, token)?;
        wanted.collect(|page| numbers(end, page), |number| number % 2 == 0).await
    }

    #[tokio::test]
    async fn no_limit_is_everything() {
        let (items, next) = collect(5000, 0, "").await.unwrap();

        assert_eq!((items.len(), next), (2500, None));
    }

    #[tokio::test]
    async fn pages_follow_each_other_and_the_last_has_no_token() {
        let mut seen = Vec::new();
        let mut token = String::new();
        loop {
            let (items, next) = collect(21, 3, &token).await.unwrap();
            assert!(items.len() == 3 || next.is_none(), "{items:?}");
            seen.extend(items);
            match next {
                Some(next) => token = next,
                None => break,
            }
        }

        assert_eq!(seen, (0..21).step_by(2).collect::<Vec<_>>());
        let (items, next) = collect(3, 2, "").await.unwrap();
        assert_eq!((items, next), (vec![0, 2], None), "nothing is left");
    }

    #[tokio::test]
    async fn a_bad_token_begins_again_and_a_negative_number_is_refused() {
        assert_eq!(collect(3, 0, "invalid-token").await.unwrap_err().kind(), Kind::Busy);
        assert_eq!(collect(3, -1, "").await.unwrap_err().kind(), Kind::Invalid);
    }
}
