package redlock

// fingerprints is a compact set of 64-bit fingerprints. With thirty million of them, the
// probability of a collision is about 1 in 40,000.
type fingerprints struct {
	slots []uint64 // 0 is free
	used  int
}

func newFingerprints() fingerprints { return fingerprints{slots: make([]uint64, 1<<16)} }

// add adds key and reports whether it was new.
func (f *fingerprints) add(key uint64) bool {
	if key == 0 {
		key = 1
	}
	if 2*f.used >= len(f.slots) {
		old := f.slots
		f.slots, f.used = make([]uint64, 2*len(old)), 0
		for _, k := range old {
			if k != 0 {
				f.add(k)
			}
		}
	}
	mask := uint64(len(f.slots) - 1)
	for i := key & mask; ; i = (i + 1) & mask {
		switch f.slots[i] {
		case key:
			return false
		case 0:
			f.slots[i] = key
			f.used++
			return true
		}
	}
}
