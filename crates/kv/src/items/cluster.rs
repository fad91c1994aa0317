//! Keys that other nodes keep.

use super::Items;
use crate::carry::Carry;
use crate::ids::TenantNo;
use crate::moment::Moment;
use crate::out::Out;
use crate::owners::{Owners, slot_of};
use netmem::Member;

impl Items {
    /// From now on this is one of several nodes of one key space.
    pub fn share(&mut self, owners: Owners) {
        self.owners = Some(owners);
    }

    /// Owners of keys, where this node is not the only one.
    pub fn owners(&self) -> Option<&Owners> {
        self.owners.as_ref()
    }

    /// The same, to be told of views.
    pub fn owners_mut(&mut self) -> Option<&mut Owners> {
        self.owners.as_mut()
    }

    /// All members of a view know it: these serve keys, with their weights.
    pub(crate) fn settle_view(&mut self, view: u64, members: &[Member], moment: Moment) {
        self.begin_cas(moment);
        self.unswept = self.entries.len();
        self.owners.as_mut().expect("one of several nodes").settle(view, members);
    }

    /// The slot of a key that this node cannot answer for, now.
    pub(crate) fn slot_elsewhere(&self, key: &[u8], moment: Moment) -> Option<usize> {
        let owners = self.owners.as_ref()?;
        Some(slot_of(key)).filter(|slot| !owners.is_here(*slot, moment))
    }

    /// A command for other nodes; its answer has its place in the output from now on.
    pub(crate) fn carry(&mut self, carry: Carry, out: &mut Out) {
        out.later(&carry.later, carry.answer_bytes());
        out.note_carried(carry.changes);
        self.carries.push_back(carry);
    }

    /// The next command to be carried to other nodes; then [`Carry::answer`].
    pub fn poll_carry(&mut self) -> Option<Carry> {
        self.carries.pop_front()
    }

    /// Number of commands to be carried.
    pub fn carries(&self) -> usize {
        self.carries.len()
    }

    /// Commands of other nodes, by the seats of their sessions, whose replies have come.
    pub fn take_carried_ready(&mut self, ready: &mut Vec<u32>) {
        ready.append(&mut self.carried_ready.borrow_mut());
    }

    /// The number of a tenant.
    pub fn tenant_named(&self, name: &[u8]) -> Option<TenantNo> {
        let found = self.tenants.iter().position(|tenant| tenant.config.name.as_bytes() == name);
        found.map(|number| TenantNo(number as u16))
    }
}
