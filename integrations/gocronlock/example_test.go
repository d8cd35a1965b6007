package gocronlock_test

import (
	"context"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/integrations/gocronlock"
	"github.com/leased-project/leased/lease"
	"github.com/leased-project/leased/storagegate/filegate"
)

// A report is written by one of several hosts, every hour.
func Example() {
	ctx := context.Background()
	locks, err := client.Dial(ctx, []string{"127.0.0.1:7420"})
	if err != nil {
		log.Fatal(err)
	}
	gate, err := filegate.New("/srv/reports", fencing.Rule{})
	if err != nil {
		log.Fatal(err)
	}
	locker := gocronlock.NewLocker(locks, "jobs/", 30*time.Second)
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		log.Fatal(err)
	}
	task := locker.Task(func(ctx context.Context, l *lease.Lease) error {
		return lease.Gate(l, gate).Do(ctx, func(file *filegate.File) error {
			_, err := file.Write([]byte("the report"))
			return err
		})
	})
	if _, err := scheduler.NewJob(gocron.CronJob("0 * * * *", false), task, gocron.WithName("report")); err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
}

// One of several hosts runs all jobs.
func ExampleElector() {
	ctx := context.Background()
	locks, err := client.Dial(ctx, []string{"127.0.0.1:7420"})
	if err != nil {
		log.Fatal(err)
	}
	elector := gocronlock.NewElector("jobs/leader")
	go elector.Campaign(ctx, locks) // until then, this host runs no job
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
}
