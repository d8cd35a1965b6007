package certmagicstore_test

import (
	"context"
	"database/sql"
	"log"

	"github.com/caddyserver/certmagic"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/leased-project/leased/client"
	"github.com/leased-project/leased/integrations/certmagicstore"
)

// Several servers share the certificates of a domain.
func Example() {
	ctx := context.Background()
	locks, err := client.Dial(ctx, []string{"127.0.0.1:7420"})
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("pgx", "postgres://shop@db.example/certificates")
	if err != nil {
		log.Fatal(err)
	}
	storage, err := certmagicstore.New(locks, db, "certmagic/")
	if err != nil {
		log.Fatal(err)
	}
	if err := storage.Install(ctx); err != nil { // once for the database
		log.Fatal(err)
	}
	certmagic.Default.Storage = storage
	if err := certmagic.ManageSync(ctx, []string{"shop.example"}); err != nil {
		log.Fatal(err)
	}
}
