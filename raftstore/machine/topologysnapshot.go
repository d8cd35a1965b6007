package machine

// topology encodes the migrations, efficiency mode and the members' addresses. The
// policies and their version are encoded before.
func (w *writer) topology(m *Machine) {
	w.int(len(m.migrations))
	for _, prefix := range sortedKeys(m.migrations) {
		mv := m.migrations[prefix]
		w.text(prefix)
		w.uint(mv.version)
		w.bool(mv.now)
		w.bool(mv.delete)
		if !mv.delete {
			w.policy(mv.target)
		}
		w.bool(mv.existed)
		if mv.existed {
			w.policy(mv.before)
		}
	}
	w.fleet(m.fleet)
	w.uint(m.nextVersion)
	if m.nextVersion != 0 {
		w.fleet(m.nextFleet)
		w.bool(m.nextNow)
		w.bool(m.nextForce)
	}
	w.uint(uint64(m.floor))
	w.uint(uint64(m.ceiling))
	w.bool(m.used)
	w.bool(m.ready)
	w.bool(m.restored)
	w.uint(m.reconciled)
	w.texts(m.assigned)
	w.int(len(m.memberAPI))
	for _, id := range sortedKeys(m.memberAPI) {
		w.text(id)
		w.text(m.memberAPI[id])
	}
}

// restoreTopology decodes the result of topology. check validates it.
func (m *Machine) restoreTopology(r *reader) {
	last := ""
	for i := range r.count() {
		prefix := r.text()
		if i > 0 && prefix <= last {
			r.fail("migrations are not in ascending order")
		}
		last = prefix
		mv := &migration{version: r.max(maxCount), now: r.bool(), delete: r.bool()}
		if !mv.delete {
			mv.target = r.policy()
		}
		if mv.existed = r.bool(); mv.existed {
			mv.before = r.policy()
		}
		m.migrations[prefix] = mv
	}
	m.fleet = r.fleet()
	if m.nextVersion = r.max(maxCount); m.nextVersion != 0 {
		m.nextFleet, m.nextNow, m.nextForce = r.fleet(), r.bool(), r.bool()
	}
	m.floor, m.ceiling = r.token(), r.token()
	m.used, m.ready, m.restored, m.reconciled = r.bool(), r.bool(), r.bool(), r.max(maxCount)
	m.assigned = r.texts()
	last = ""
	for i := range r.count() {
		id := r.text()
		if i > 0 && id <= last {
			r.fail("members are not in ascending order")
		}
		last = id
		m.memberAPI[id] = r.text()
	}
}
