package process

// Servers are the servers of one service.
type Servers []*Process

// Pids returns the process ids of the servers that run.
func (s Servers) Pids() (pids []int) {
	for _, p := range s {
		if pid := p.Pid(); pid != 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Restart starts the servers that do not run.
func (s Servers) Restart() error {
	for _, p := range s {
		if p.Running() {
			continue
		}
		if err := p.Restart(); err != nil {
			return err
		}
	}
	return nil
}

// Kill ends the servers that run.
func (s Servers) Kill() {
	for _, p := range s {
		if p.Running() {
			p.Kill()
		}
	}
}

// Explain adds the output of the servers to an error.
func (s Servers) Explain(err error) error {
	for _, p := range s {
		err = p.Explain(err)
	}
	return err
}
