package machine

import "github.com/leased-project/leased/lease/engine"

// decodeTopologyCommand decodes the commands that change policies, fleet and members.
func decodeTopologyCommand(r *reader, op byte) Command {
	switch op {
	case opSetPolicy:
		return &SetPolicy{Policy: r.policy(), Version: r.uint(), Now: r.bool()}
	case opDeletePolicy:
		return &DeletePolicy{Prefix: r.text(), Version: r.uint(), Now: r.bool()}
	case opAbortMigration:
		return &AbortMigration{Prefix: r.text()}
	case opFinishMigration:
		return &FinishMigration{Prefix: r.text(), Version: r.uint()}
	case opSetFleet:
		return &SetFleet{Fleet: r.fleet(), Version: r.uint(), Now: r.bool(), Force: r.bool()}
	case opFinishFleet:
		return &FinishFleet{Version: r.uint()}
	case opAssignRange:
		return &AssignRange{Member: r.text(), Join: r.text()}
	case opRaiseCeiling:
		return &RaiseCeiling{To: r.token()}
	case opReconcile:
		return &Reconcile{Version: r.uint(), Ceiling: r.token()}
	case opFinishReconcile:
		return &FinishReconcile{Version: r.uint()}
	case opMarkRestored:
		return &MarkRestored{Version: r.uint(), Ceiling: r.token(), Fleet: r.fleet()}
	case opSetMemberAPI:
		return &SetMemberAPI{ID: r.text(), Address: r.text()}
	default:
		r.fail("unknown operation %d", op)
		return nil
	}
}

func (c *SetPolicy) encode(w *writer) {
	w.byte(opSetPolicy)
	w.policy(c.Policy)
	w.uint(c.Version)
	w.bool(c.Now)
}

func (c *DeletePolicy) encode(w *writer) {
	w.byte(opDeletePolicy)
	w.text(c.Prefix)
	w.uint(c.Version)
	w.bool(c.Now)
}

func (c *AbortMigration) encode(w *writer) {
	w.byte(opAbortMigration)
	w.text(c.Prefix)
}

func (c *FinishMigration) encode(w *writer) {
	w.byte(opFinishMigration)
	w.text(c.Prefix)
	w.uint(c.Version)
}

func (c *SetFleet) encode(w *writer) {
	w.byte(opSetFleet)
	w.fleet(c.Fleet)
	w.uint(c.Version)
	w.bool(c.Now)
	w.bool(c.Force)
}

func (c *FinishFleet) encode(w *writer) {
	w.byte(opFinishFleet)
	w.uint(c.Version)
}

func (c *AssignRange) encode(w *writer) {
	w.byte(opAssignRange)
	w.text(c.Member)
	w.text(c.Join)
}

func (c *RaiseCeiling) encode(w *writer) {
	w.byte(opRaiseCeiling)
	w.uint(uint64(c.To))
}

func (c *Reconcile) encode(w *writer) {
	w.byte(opReconcile)
	w.uint(c.Version)
	w.uint(uint64(c.Ceiling))
}

func (c *FinishReconcile) encode(w *writer) {
	w.byte(opFinishReconcile)
	w.uint(c.Version)
}

func (c *MarkRestored) encode(w *writer) {
	w.byte(opMarkRestored)
	w.uint(c.Version)
	w.uint(uint64(c.Ceiling))
	w.fleet(c.Fleet)
}

func (c *SetMemberAPI) encode(w *writer) {
	w.byte(opSetMemberAPI)
	w.text(c.ID)
	w.text(c.Address)
}

func (w *writer) policy(p engine.Policy) {
	w.text(p.Prefix)
	w.byte(byte(p.Mode))
	w.byte(byte(p.Next))
	w.dur(p.TTL)
	w.dur(p.Renew)
	w.dur(p.Drift)
	w.dur(p.LockDelay)
}

func (r *reader) policy() engine.Policy {
	return engine.Policy{Prefix: r.text(), Mode: engine.Mode(r.byte()), Next: engine.Mode(r.byte()),
		TTL: r.dur(), Renew: r.dur(), Drift: r.dur(), LockDelay: r.dur()}
}

func (w *writer) fleet(f engine.Fleet) {
	w.text(f.Namespace)
	w.texts(f.Addresses)
	w.dur(f.MaxTTL)
}

func (r *reader) fleet() engine.Fleet {
	return engine.Fleet{Namespace: r.text(), Addresses: r.texts(), MaxTTL: r.dur()}
}

func (w *writer) texts(list []string) {
	w.int(len(list))
	for _, text := range list {
		w.text(text)
	}
}

// texts returns nil for an empty list.
func (r *reader) texts() (list []string) {
	for range r.count() {
		list = append(list, r.text())
	}
	return list
}
