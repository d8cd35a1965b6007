package objectgate_test

import (
	"context"
	"fmt"
	"log"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
	"github.com/leased-project/leased/storagegate/objectgate"
)

// exampleTB lets an example use the shared server of the tests.
type exampleTB struct{ testing.TB }

func (exampleTB) Helper()           {}
func (exampleTB) Fatal(args ...any) { log.Fatal(args...) }

func ExampleGate() {
	ctx := context.Background()
	endpoint := "http://" + store.Get(exampleTB{}).Addr // the address of your store
	client := s3.New(s3.Options{BaseEndpoint: &endpoint, Region: "us-east-1", UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(testserver.S3User, testserver.S3Password, "")})
	bucket := "example"
	if _, err := client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &bucket}); err != nil {
		log.Fatal(err)
	}
	gate := objectgate.New(client, bucket, fencing.Rule{}, objectgate.Prefix("orders/"))
	if err := gate.Verify(ctx, "leased-probe"); err != nil { // the store must enforce conditions
		log.Fatal(err)
	}
	for _, token := range []fencing.Token{34, 33} { // the newer holder, then the paused one
		err := gate.Do(ctx, "42", token, func(tx *objectgate.Tx) error {
			old, err := tx.Read()
			if err != nil {
				return err
			}
			tx.Write(fmt.Appendf(old, "written with token %d", token))
			return nil
		})
		fmt.Println(err)
	}
	data, err := gate.Read(ctx, "42")
	fmt.Println(string(data), err)
	// Output:
	// <nil>
	// stale fencing token 33 for "42": 34 has been admitted; the lease is lost, stop writing
	// written with token 34 <nil>
}
