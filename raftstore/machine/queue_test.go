package machine

import (
	"testing"
)

func TestQueue(t *testing.T) {
	run(t, []scenario{
		{"first come, first served, handed over in one command", []step{
			{write(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{write(bob, 1, "a"), "queued", "bob/1 queued a"},
			{write(eve, 1, "a"), "queued", "eve/1 queued a"},
			{write(ann, 2, "a"), "queued", "ann/2 queued a"},
			{free(ann, 1), "done", "ann/1 released a #1, bob/1 granted a #2"},
			{free(bob, 1), "done", "bob/1 released a #2, eve/1 granted a #3"},
			{free(eve, 1), "done", "eve/1 released a #3, ann/2 granted a #4"},
			{free(ann, 2), "done", "ann/2 released a #4"},
		}},
		{"readers share, and do not starve a writer", []step{
			{read(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{read(bob, 1, "a"), "granted #2", "bob/1 granted a #2"},
			{write(eve, 1, "a"), "queued", "eve/1 queued a"},
			{read(ann, 2, "a"), "queued", "ann/2 queued a"},
			{try(read(bob, 2, "a")), "held", ""},
			{free(bob, 1), "done", "bob/1 released a #2"},
			{free(ann, 1), "done", "ann/1 released a #1, eve/1 granted a #3"},
			{read(bob, 3, "a"), "queued", "bob/3 queued a"},
			{free(eve, 1), "done", "eve/1 released a #3, ann/2 granted a #4, bob/3 granted a #5"},
		}},
		{"when a writer leaves, the readers behind it are granted", []step{
			{read(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{write(eve, 1, "a"), "queued", "eve/1 queued a"},
			{read(bob, 1, "a"), "queued", "bob/1 queued a"},
			{free(eve, 1), "done", "eve/1 cancelled a, bob/1 granted a #2"},
		}},
		{"a reader passes a reader that waits for something else", []step{
			{write(ann, 1, "b"), "granted #1", "ann/1 granted b #1"},
			{read(bob, 1, "a", "b"), "queued", "bob/1 queued a+b"},
			{read(eve, 1, "a"), "granted #2", "eve/1 granted a #2"},
			{write(eve, 2, "a"), "queued", "eve/2 queued a"},
			{free(eve, 1), "done", "eve/1 released a #2"},
			{free(ann, 1), "done", "ann/1 released b #1, bob/1 granted a+b #3"},
			{free(bob, 1), "done", "bob/1 released a+b #3, eve/2 granted a #4"},
		}},
		{"a blocked reader does not block a reader behind it", []step{
			{write(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{write(ann, 2, "b"), "granted #2", "ann/2 granted b #2"},
			{read(bob, 1, "a", "b"), "queued", "bob/1 queued a+b"},
			{read(eve, 1, "a"), "queued", "eve/1 queued a"},
			{free(ann, 1), "done", "ann/1 released a #1, eve/1 granted a #3"},
			{free(ann, 2), "done", "ann/2 released b #2, bob/1 granted a+b #4"},
		}},
		{"an acquire that does not wait neither queues nor overtakes", []step{
			{read(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{try(write(bob, 1, "a")), "held", ""},
			{read(eve, 1, "a"), "granted #2", "eve/1 granted a #2"},
			{try(write(bob, 2, "b")), "granted #3", "bob/2 granted b #3"},
		}},
	})
}

func TestSets(t *testing.T) {
	run(t, []scenario{
		{"all or none", []step{
			{write(ann, 1, "b"), "granted #1", "ann/1 granted b #1"},
			{try(write(bob, 1, "a", "b", "c")), "held", ""},
			{write(bob, 2, "a", "b", "c"), "queued", "bob/2 queued a+b+c"},
			{try(write(eve, 1, "c")), "held", ""},
			{free(ann, 1), "done", "ann/1 released b #1, bob/2 granted a+b+c #2"},
			{write(eve, 2, "a"), "queued", "eve/2 queued a"},
			{write(ann, 2, "c"), "queued", "ann/2 queued c"},
			{free(bob, 2), "done", "bob/2 released a+b+c #2, eve/2 granted a #3, ann/2 granted c #4"},
		}},
		{"overlapping sets do not deadlock", []step{
			{write(ann, 1, "a", "b"), "granted #1", "ann/1 granted a+b #1"},
			{write(bob, 1, "b", "c"), "queued", "bob/1 queued b+c"},
			{write(eve, 1, "a", "c"), "queued", "eve/1 queued a+c"},
			{write(ann, 2, "a", "b", "c"), "queued", "ann/2 queued a+b+c"},
			{free(ann, 1), "done", "ann/1 released a+b #1, bob/1 granted b+c #2"},
			{free(bob, 1), "done", "bob/1 released b+c #2, eve/1 granted a+c #3"},
			{free(eve, 1), "done", "eve/1 released a+c #3, ann/2 granted a+b+c #4"},
		}},
		{"a waiting set keeps its place on a free resource", []step{
			{write(ann, 1, "a"), "granted #1", "ann/1 granted a #1"},
			{write(bob, 1, "a", "b"), "queued", "bob/1 queued a+b"},
			{write(eve, 1, "b"), "queued", "eve/1 queued b"},
			{free(bob, 1), "done", "bob/1 cancelled a+b, eve/1 granted b #2"},
		}},
	})
}

func TestPermits(t *testing.T) {
	run(t, []scenario{
		{"each permit has the lowest free slot", []step{
			{permit(ann, 1, 3, "p"), "granted #1 @1", "ann/1 granted p #1 @1"},
			{permit(ann, 2, 3, "p"), "granted #2 @2", "ann/2 granted p #2 @2"},
			{permit(ann, 3, 3, "p"), "granted #3 @3", "ann/3 granted p #3 @3"},
			{permit(bob, 1, 3, "p"), "queued", "bob/1 queued p"},
			{free(ann, 2), "done", "ann/2 released p #2 @2, bob/1 granted p #4 @2"},
			{free(ann, 1), "done", "ann/1 released p #1 @1"},
			{permit(eve, 1, 3, "p"), "granted #5 @1", "eve/1 granted p #5 @1"},
		}},
		{"the number of permits belongs to the lock while permits are held", []step{
			{permit(ann, 1, 2, "p"), "granted #1 @1", "ann/1 granted p #1 @1"},
			{permit(bob, 1, 3, "p"), "other permits 2", ""},
			{try(permit(bob, 2, 1, "p")), "other permits 2", ""},
			{permit(bob, 1, 2, "p"), "ended", ""},
			{permit(bob, 3, 2, "p"), "granted #2 @2", "bob/3 granted p #2 @2"},
			{free(ann, 1), "done", "ann/1 released p #1 @1"},
			{permit(eve, 1, 3, "p"), "other permits 2", ""},
			{free(bob, 3), "done", "bob/3 released p #2 @2"},
			{permit(eve, 2, 3, "p"), "granted #3 @1", "eve/2 granted p #3 @1"},
		}},
		{"the number of permits belongs to the lock while permits are waited for", []step{
			{write(ann, 1, "p"), "granted #1", "ann/1 granted p #1"},
			{write(bob, 1, "p"), "queued", "bob/1 queued p"},
			{permit(bob, 2, 2, "p"), "queued", "bob/2 queued p"},
			{permit(eve, 1, 3, "p"), "other permits 2", ""},
			{free(bob, 2), "done", "bob/2 cancelled p"},
			{permit(eve, 2, 3, "p"), "queued", "eve/2 queued p"},
		}},
		{"permits exclude readers and writers", []step{
			{permit(ann, 1, 2, "p"), "granted #1 @1", "ann/1 granted p #1 @1"},
			{read(bob, 1, "p"), "queued", "bob/1 queued p"},
			{permit(ann, 2, 2, "p"), "queued", "ann/2 queued p"},
			{free(ann, 1), "done", "ann/1 released p #1 @1, bob/1 granted p #2"},
			{free(bob, 1), "done", "bob/1 released p #2, ann/2 granted p #3 @1"},
			{try(write(bob, 2, "p")), "held", ""},
		}},
	})
}
