package engine

import "sync"

// Each calls do with the numbers from 0 to n-1, at most limit at a time, and returns the errors
// of the calls.
func Each(n, limit int, do func(i int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	room := make(chan struct{}, limit)
	for i := range n {
		room <- struct{}{}
		wg.Go(func() {
			errs[i] = do(i)
			<-room
		})
	}
	wg.Wait()
	return errs
}
