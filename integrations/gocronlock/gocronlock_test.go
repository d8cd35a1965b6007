package gocronlock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/integrations/gocronlock"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/storagegate/filegate"
)

var service = testserver.Shared{Start: testserver.StartService}

func TestMain(m *testing.M) {
	if os.Getenv("SCHEDULER") != "" {
		os.Exit(child())
	}
	code := m.Run()
	service.Stop()
	os.Exit(code)
}

// work is the function of a job.
type work func(ctx context.Context, l *lease.Lease) error

// start runs a scheduler with one job, which runs once, at once. It returns the error of
// the run, or why there was none. kind is "locker" or "elector".
func start(ctx context.Context, locks *lease.Client, kind, name string, minHold time.Duration, work work) (<-chan error,
	func(), error) {
	var option gocron.SchedulerOption
	var task gocron.Task
	campaign, stop := context.WithCancel(ctx)
	skipped := make(chan error, 1)
	if kind == "elector" {
		elector := gocronlock.NewElector(fencing.Resource("jobs/" + name))
		go elector.Campaign(campaign, locks)
		for elector.IsLeader(ctx) != nil && ctx.Err() == nil { // a job that is due is skipped on followers
			<-time.After(10 * time.Millisecond)
		}
		option, task = gocron.WithDistributedElector(elector), elector.Task(work)
	} else {
		locker := gocronlock.NewLocker(locks, "jobs/", minHold)
		option, task = gocron.WithDistributedLocker(locker), locker.Task(work)
	}
	scheduler, err := gocron.NewScheduler(option, gocron.WithStopTimeout(time.Minute))
	if err != nil {
		return nil, stop, err
	}
	_, err = scheduler.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), task, gocron.WithName(name),
		gocron.WithEventListeners(
			gocron.AfterJobRuns(func(uuid.UUID, string) { skipped <- nil }),
			gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { skipped <- err }),
			gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { skipped <- err })))
	scheduler.Start()
	return skipped, func() { stop(); _ = scheduler.Shutdown() }, err
}

func dial(t *testing.T) *lease.Client {
	t.Helper()
	locks, err := client.Dial(testserver.Context(t), []string{service.Get(t).Addr})
	require.NoError(t, err)
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	return locks
}

// running starts a scheduler and returns the error of its run.
func running(t *testing.T, locks *lease.Client, kind, name string, minHold time.Duration, work work) <-chan error {
	t.Helper()
	done, stop, err := start(testserver.Context(t), locks, kind, name, minHold, work)
	t.Cleanup(stop)
	require.NoError(t, err)
	return done
}

func breakLease(t *testing.T, locks *lease.Client, resource fencing.Resource) {
	t.Helper()
	ctx := testserver.Context(t)
	status, err := locks.Inspect(ctx, resource)
	require.NoError(t, err)
	require.Len(t, status.Holders, 1)
	require.NoError(t, locks.Break(ctx, resource, status.Holders[0].Token))
}

// While one scheduler runs the job, the other one skips it.
func TestOneRunAtATime(t *testing.T) {
	t.Parallel()
	first, second := dial(t), dial(t)
	began, end := make(chan fencing.Token), make(chan struct{})
	done := running(t, first, "locker", "one", 0, func(_ context.Context, l *lease.Lease) error {
		began <- l.Token()
		<-end
		return nil
	})
	token := testserver.Receive(t, began)
	fail := func(context.Context, *lease.Lease) error { return errors.New("it runs") }
	require.ErrorIs(t, testserver.Receive(t, running(t, second, "locker", "one", 0, fail)), lease.ErrHeld)
	close(end)
	require.NoError(t, testserver.Receive(t, done))
	var next fencing.Token
	testserver.Eventually(t, "the lock is free", func() bool {
		return testserver.Receive(t, running(t, second, "locker", "one", 0, func(_ context.Context, l *lease.Lease) error {
			next = l.Token()
			return nil
		})) == nil
	})
	require.True(t, next.Newer(token))
}

// A short job keeps its lock for minHold, so that a scheduler whose clock is late skips it.
func TestMinHold(t *testing.T) {
	t.Parallel()
	first, second := dial(t), dial(t)
	nothing := func(context.Context, *lease.Lease) error { return nil }
	require.NoError(t, testserver.Receive(t, running(t, first, "locker", "short", time.Hour, nothing)))
	require.ErrorIs(t, testserver.Receive(t, running(t, second, "locker", "short", 0, nothing)), lease.ErrHeld)
	require.NoError(t, first.Close(testserver.Context(t)))
	require.NoError(t, testserver.Receive(t, running(t, second, "locker", "short", time.Millisecond, nothing)))
	testserver.Eventually(t, "the lock is free", func() bool {
		status, err := second.Inspect(testserver.Context(t), "jobs/short")
		return err == nil && len(status.Holders) == 0
	})
}

// ended returns why the context of a job has ended.
func ended(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Minute):
		return errors.New("the context has not ended with the lease")
	}
}

// The context of a job ends with its lease, and the run fails.
func TestContextEndsWithTheLease(t *testing.T) {
	for _, kind := range []string{"locker", "elector"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			locks, name := dial(t), "ends/"+kind
			began := make(chan struct{})
			done := running(t, locks, kind, name, 0, func(ctx context.Context, l *lease.Lease) error {
				close(began)
				return ended(ctx)
			})
			testserver.Receive(t, began)
			breakLease(t, locks, fencing.Resource("jobs/"+name))
			require.ErrorIs(t, testserver.Receive(t, done), lease.ErrLost)
		})
	}
}

// A job whose task was made by another Locker does not run.
func TestTaskNeedsItsLocker(t *testing.T) {
	t.Parallel()
	locks := dial(t)
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(gocronlock.NewLocker(locks, "jobs/", 0)))
	require.NoError(t, err)
	defer func() { require.NoError(t, scheduler.Shutdown()) }()
	done := make(chan error, 1)
	task := gocronlock.NewLocker(locks, "jobs/", 0).Task(func(context.Context, *lease.Lease) error { return nil })
	_, err = scheduler.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), task, gocron.WithName("other"),
		gocron.WithEventListeners(
			gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { done <- err })))
	require.NoError(t, err)
	scheduler.Start()
	require.ErrorIs(t, testserver.Receive(t, done), gocronlock.ErrNoLease)
}

func TestFollowerIsNotLeader(t *testing.T) {
	require.ErrorIs(t, gocronlock.NewElector("jobs/x").IsLeader(t.Context()), lease.ErrNotHeld)
}

// report writes the result of a job with the token of its lease.
func report(ctx context.Context, folder string, l *lease.Lease, text string) error {
	gate, err := filegate.New(folder, fencing.Rule{})
	if err != nil {
		return err
	}
	return gate.Do(ctx, l.GateResource(), l.Token(), func(file *filegate.File) error {
		_, err := file.Write([]byte(text))
		return err
	})
}

// child runs the job in a process of its own, and is stopped in the middle. Its exit code is 3 if its
// context ended with the lease, and the gate refused what it wrote nevertheless.
func child() int {
	ctx := context.Background()
	locks, err := client.Dial(ctx, []string{os.Getenv("SERVICE")})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	code := 0
	done, _, err := start(ctx, locks, os.Getenv("SCHEDULER"), os.Getenv("JOB"), 0,
		func(ctx context.Context, l *lease.Lease) error {
			testserver.AwaitResume()
			// The job does not look at its context.
			err := report(context.WithoutCancel(ctx), os.Getenv("FOLDER"), l, "paused")
			if errors.Is(ended(ctx), lease.ErrLost) && errors.Is(err, fencing.ErrStale) {
				code = 3
			}
			return err
		})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(<-done)
	return code
}

// A scheduler is stopped in the middle of a job, and another one runs the job. When the first one
// continues, the context of its job ends, and the gate refuses its result.
func TestPausedJobIsRefused(t *testing.T) {
	for _, kind := range []string{"locker", "elector"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			locks, folder, name := dial(t), t.TempDir(), "paused/"+kind
			resume := testserver.PauseChild(t, "SCHEDULER="+kind, "SERVICE="+service.Get(t).Addr, "JOB="+name, "FOLDER="+folder)
			breakLease(t, locks, fencing.Resource("jobs/"+name))
			err := testserver.Receive(t, running(t, locks, kind, name, 0, func(ctx context.Context, l *lease.Lease) error {
				return report(ctx, folder, l, "second")
			}))
			require.NoError(t, err)
			output, code := resume()
			require.Equal(t, 3, code, output)
			gate, err := filegate.New(folder, fencing.Rule{})
			require.NoError(t, err)
			content, err := os.ReadFile(gate.Path(fencing.Resource("jobs/" + name)))
			require.NoError(t, err)
			require.Equal(t, "second", string(content))
		})
	}
}
