use super::*;
use proptest::prelude::*;

fn marking() -> Marking {
    Marking { taint: Some(Taint::default()), exclude_from_load_balancers: true, disable_scale_down: true }
}

#[test]
fn a_claim_on_a_mark_that_is_there_is_what_the_other_role_says_and_else_foreign() {
    use Claim::{Foreign, Ours};
    for (is_there, other, claim) in [
        (false, None, Ours),
        (false, Some(Ours), Ours),
        (false, Some(Foreign), Ours),
        (true, None, Foreign),
        (true, Some(Ours), Ours),
        (true, Some(Foreign), Foreign),
    ] {
        assert_eq!(Claim::on(is_there, other), claim, "{is_there} {other:?}");
    }
}

#[test]
fn a_claim_follows_what_becomes_of_the_mark() {
    use Claim::{Foreign, Ours};
    for (claim, is_there, other, seen) in [
        (Ours, true, None, Ours),
        (Ours, true, Some(Foreign), Ours),
        (Ours, false, None, Foreign),
        (Ours, false, Some(Ours), Foreign),
        (Foreign, true, None, Foreign),
        (Foreign, true, Some(Foreign), Foreign),
        (Foreign, true, Some(Ours), Ours),
        (Foreign, false, Some(Ours), Foreign),
    ] {
        assert_eq!(claim.seen(is_there, other), seen, "{claim:?} {is_there} {other:?}");
    }
}

#[test]
fn marks_are_taken_once_and_given_up_whole() {
    let (mut claims, other) = (Claims::default(), Claims::default());
    let node = Marks::default();
    let changes = claims.take(&marking(), &other, &node);
    assert!(changes.beside_cordon() && changes.unschedulable.is_none());
    let node = node.changed(&changes);
    assert_eq!(node.taints, [NodeTaint::from(&Taint::default())]);
    assert_eq!(
        (&node.exclude_from_load_balancers, &node.scale_down_disabled),
        (&Some(YES.to_owned()), &Some(YES.to_owned()))
    );
    assert!(!claims.take(&marking(), &other, &node).any(), "nothing is written twice");
    let changes = claims.give_up(&other, &node);
    assert_eq!(node.changed(&changes), Marks::default());
    assert!(claims.none());
}

#[test]
fn a_mark_that_is_not_wanted_any_more_stays_until_all_are_given_up() {
    let (mut claims, other) = (Claims::default(), Claims::default());
    let changes = claims.take(&marking(), &other, &Marks::default());
    let node = Marks::default().changed(&changes);
    assert!(!claims.take(&Marking::default(), &other, &node).any());
    assert!(!claims.none());
}

#[test]
fn the_list_of_taints_keeps_what_we_know_nothing_of() {
    let foreign: NodeTaint =
        serde_json::from_str(r#"{"key":"x","effect":"NoExecute","timeAdded":"2026-04-11T22:00:00Z","later":1}"#)
            .unwrap();
    let node = Marks { taints: vec![foreign.clone()], ..Marks::default() };
    let mut claims = Claims::default();
    let changes = claims.take(&marking(), &Claims::default(), &node);
    let node = node.changed(&changes);
    assert_eq!(node.taints[0], foreign);
    let written = serde_json::to_value(&node.taints[0]).unwrap();
    assert_eq!(written["timeAdded"], "2026-04-11T22:00:00Z");
    let changes = claims.give_up(&Claims::default(), &node);
    assert_eq!(node.changed(&changes).taints, [foreign]);
}

#[test]
fn the_same_key_with_another_effect_is_another_taint() {
    let other = NodeTaint::from(&Taint { effect: TaintEffect::NoExecute, ..Taint::default() });
    let node = Marks { taints: vec![other.clone()], ..Marks::default() };
    let mut claims = Claims::default();
    let changes = claims.take(&marking(), &Claims::default(), &node);
    let node = node.changed(&changes);
    assert_eq!(node.taints.len(), 2);
    let changes = claims.give_up(&Claims::default(), &node);
    assert_eq!(node.changed(&changes).taints, [other]);
}

// O-09: a taint that the autoscaler copied into its picture of a new node would keep it from adding any.
#[test]
fn our_own_taint_does_not_stop_the_autoscaler_and_a_chosen_one_that_does_is_warned_of() {
    assert!(DEFAULT_TAINT_KEY.starts_with("status-taint.cluster-autoscaler.kubernetes.io/"));
    assert_eq!(Taint::default().warning(), None);
    for (key, word) in [("example.com/drain", "cluster autoscaler"), (AKS_TAINT_KEY, "auto-drain")] {
        let warning = Taint { key: key.into(), ..Taint::default() }.warning().unwrap();
        assert!(warning.contains(word), "{warning}");
    }
}

#[test]
fn claims_survive_being_written_and_read_and_keep_what_another_version_wrote() {
    let mut claims = Claims::default();
    claims.take(&marking(), &Claims::default(), &Marks::default());
    claims.cordon = Some(Claim::Foreign);
    let text = serde_json::to_string(&claims).unwrap();
    assert_eq!(serde_json::from_str::<Claims>(&text).unwrap(), claims);
    let later = r#"{"cordon":"ours","lock":"ours"}"#;
    assert_eq!(serde_json::to_string(&serde_json::from_str::<Claims>(later).unwrap()).unwrap(), later);
}

/// Who has put a mark on the node, as nobody but the test can know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Owner {
    #[default]
    Nobody,
    Role,
    Person,
}

/// A node, two roles that each know only the node and the two records on it, and the truth.
#[derive(Default)]
struct Two {
    node: Marks,
    roles: [Claims; 2],
    truth: [Owner; 3],
}

impl Two {
    fn are_there(node: &Marks) -> [bool; 3] {
        let Marks { taints, exclude_from_load_balancers, scale_down_disabled, .. } = node;
        let taint = taints.iter().any(|taint| taint.key == DEFAULT_TAINT_KEY);
        [taint, exclude_from_load_balancers.is_some(), scale_down_disabled.is_some()]
    }

    fn claimed(claims: &Claims) -> [bool; 3] {
        [claims.taint.is_some(), claims.exclude_from_load_balancers.is_some(), claims.scale_down_disabled.is_some()]
    }

    /// A role writes what it has decided on, together with its claims.
    fn write(&mut self, role: usize, claims: Claims, changes: &MarkChanges) -> Result<(), TestCaseError> {
        let before = Self::are_there(&self.node);
        let foreign = |node: &Marks| node.taints.iter().filter(|taint| taint.key != DEFAULT_TAINT_KEY).count();
        let others = foreign(&self.node);
        self.node = std::mem::take(&mut self.node).changed(changes);
        prop_assert_eq!(foreign(&self.node), others);
        let needed_by_other = Self::claimed(&self.roles[1 - role]);
        for (mark, is_there) in Self::are_there(&self.node).into_iter().enumerate() {
            match (before[mark], is_there) {
                (true, false) => {
                    prop_assert_eq!(self.truth[mark], Owner::Role, "mark {} was a person's", mark);
                    prop_assert!(!needed_by_other[mark], "mark {} is still needed", mark);
                    self.truth[mark] = Owner::Nobody;
                }
                (false, true) => self.truth[mark] = Owner::Role,
                _ => {}
            }
        }
        self.roles[role] = claims;
        Ok(())
    }

    fn take(&mut self, role: usize, wanted: &Marking) -> Result<(), TestCaseError> {
        let mut claims = self.roles[role].clone();
        let changes = claims.take(wanted, &self.roles[1 - role], &self.node);
        self.write(role, claims, &changes)
    }

    fn give_up(&mut self, role: usize) -> Result<(), TestCaseError> {
        let mut claims = self.roles[role].clone();
        let changes = claims.give_up(&self.roles[1 - role], &self.node);
        self.write(role, claims, &changes)
    }

    fn person(&mut self, mark: usize, sets: bool, says: &str) {
        if sets && self.truth[mark] != Owner::Nobody {
            return;
        }
        self.truth[mark] = if sets { Owner::Person } else { Owner::Nobody };
        match mark {
            0 => {
                self.node.taints.retain(|taint| taint.key != DEFAULT_TAINT_KEY);
                if sets {
                    self.node.taints.push(NodeTaint::from(&Taint { value: says.into(), ..Taint::default() }));
                }
            }
            1 => self.node.exclude_from_load_balancers = sets.then(|| says.to_owned()),
            _ => self.node.scale_down_disabled = sets.then(|| says.to_owned()),
        }
    }

    /// Both roles watch the node, in whichever order the news reaches them.
    fn both_look(&mut self, first: usize) {
        for role in [first, 1 - first] {
            let other = self.roles[1 - role].clone();
            self.roles[role].look(&other, &self.node);
        }
    }
}

#[derive(Clone, Debug)]
enum Turn {
    Take(usize, Marking),
    /// A role plans, somebody else writes, the role's write is refused, and it plans again.
    TakeAfterConflict(usize, usize),
    GiveUp(usize),
    Sets(usize, &'static str),
    TakesAway(usize),
}

fn turn() -> impl Strategy<Value = Turn> {
    let wanted = (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(taint, label, annotation)| Marking {
        taint: taint.then(Taint::default),
        exclude_from_load_balancers: label,
        disable_scale_down: annotation,
    });
    prop_oneof![
        3 => (0_usize..2, wanted).prop_map(|(role, wanted)| Turn::Take(role, wanted)),
        1 => (0_usize..2, 0_usize..3).prop_map(|(role, mark)| Turn::TakeAfterConflict(role, mark)),
        2 => (0_usize..2).prop_map(Turn::GiveUp),
        2 => (0_usize..3, prop_oneof![Just(YES), Just("false"), Just("")]).prop_map(|(mark, says)| Turn::Sets(mark, says)),
        2 => (0_usize..3).prop_map(Turn::TakesAway),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4 * ProptestConfig::default().cases))]

    /// Whatever two roles and people do, a person's mark is never removed, ours goes with the last claim and not before.
    #[test]
    fn two_roles_share_marks_and_leave_those_of_people_alone(
        turns in proptest::collection::vec((turn(), 0_usize..2), 1..40),
        last in 0_usize..2,
    ) {
        let mut two = Two::default();
        two.node.taints.push(NodeTaint { key: "x".into(), ..NodeTaint::default() });
        for (turn, first) in turns {
            match turn {
                Turn::Take(role, wanted) => two.take(role, &wanted)?,
                Turn::TakeAfterConflict(role, mark) => {
                    let mut forgotten = two.roles[role].clone();
                    let _refused = forgotten.take(&marking(), &two.roles[1 - role], &two.node);
                    two.person(mark, true, YES);
                    two.both_look(first);
                    two.take(role, &marking())?;
                }
                Turn::GiveUp(role) => two.give_up(role)?,
                Turn::Sets(mark, says) => two.person(mark, true, says),
                Turn::TakesAway(mark) => two.person(mark, false, ""),
            }
            two.both_look(first);
        }
        two.give_up(1 - last)?;
        two.both_look(last);
        two.give_up(last)?;
        prop_assert!(two.roles.iter().all(Claims::none));
        for (mark, is_there) in Two::are_there(&two.node).into_iter().enumerate() {
            prop_assert_eq!(is_there, two.truth[mark] == Owner::Person, "mark {}: {:?}", mark, two.truth[mark]);
        }
    }
}
