//go:build unix && !linux

package supervise_test

func blockSignal() {}
