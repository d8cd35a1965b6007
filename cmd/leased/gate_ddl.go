package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

// newGateDDL returns the command that prints the SQL of a gate.
func newGateDDL() *cobra.Command {
	var dialect string
	var table sqlgate.GuardedTable
	var maxJump uint64
	var signed bool
	c := &cobra.Command{
		Use: "ddl --dialect postgres|mysql|sqlite", Short: "Print the SQL of a gate",
		Long: "Print the SQL that creates the table of marks and its functions, for psql, mariadb or sqlite3. With\n" +
			"--guard-table, print triggers for one of your tables instead: they refuse rows without a token or with a\n" +
			"stale one even if the code that writes them does not check it, from the moment they exist.\n\n" +
			"A fence refuses a token that is more than 2^40 above the mark. --max-jump prints SQL that changes that\n" +
			"bound for the whole database; running the other SQL again does not change it back.\n\n" +
			"With --signed, print the SQL for signed tokens (PostgreSQL): run it after the SQL without --signed. It creates\n" +
			"leased_fence_signed, which admits only tokens that the lock service has signed, for roles without privileges\n" +
			"on the marks. With --signed and --guard-table, print triggers that require it.",
		Example: "  leased gate ddl --dialect postgres | psql mydb\n" +
			"  leased gate ddl --dialect postgres --guard-table orders --guard-column id --guard-prefix orders/\n" +
			"  leased gate ddl --dialect postgres --max-jump 17592186044416 | psql mydb\n" +
			"  leased gate ddl --dialect postgres --signed | psql mydb",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if dialect == "" {
				return usageError(fmt.Errorf("--dialect is required: postgres, mysql or sqlite"))
			}
			parsed, err := sqlgate.ParseDialect(dialect)
			if err != nil {
				return usageError(fmt.Errorf("--dialect: %w", err))
			}
			text, err := gateSQL(parsed, table, fencing.Token(maxJump), c.Flags().Changed("max-jump"), signed)
			if err != nil {
				return usageError(err)
			}
			_, err = fmt.Fprint(c.OutOrStdout(), text)
			return err
		},
	}
	c.Flags().StringVar(&dialect, "dialect", "", "database: postgres, mysql or sqlite (required)")
	c.Flags().StringVar(&table.Table, "guard-table", "", "print triggers that guard this table")
	c.Flags().StringVar(&table.Column, "guard-column", "", "column with the resource name of a row")
	c.Flags().StringVar(&table.Prefix, "guard-prefix", "", "prefix of the resource name, before the column's value")
	c.Flags().BoolVar(&table.AllowUnfenced, "guard-allow-unfenced", false, "let rows be written without a token as long as their resource was never fenced")
	c.Flags().BoolVar(&signed, "signed", false, "print the SQL for signed tokens (postgres)")
	c.Flags().Uint64Var(&maxJump, "max-jump", uint64(fencing.DefaultMaxJump), "print SQL that sets the largest allowed difference between a token and the mark; 9007199254740991 allows any")
	return c
}

func gateSQL(dialect sqlgate.Dialect, table sqlgate.GuardedTable, maxJump fencing.Token, setMaxJump, signed bool) (string, error) {
	guard := table != sqlgate.GuardedTable{}
	switch {
	case setMaxJump && signed:
		return "", fmt.Errorf("--max-jump applies to the whole database; print it without --signed")
	case setMaxJump && guard:
		return "", fmt.Errorf("--max-jump applies to the whole database; print it without the --guard flags")
	case setMaxJump:
		return sqlgate.SetMaxJump(dialect, maxJump)
	case !guard && signed:
		return sqlgate.SignedDDL(dialect)
	case !guard:
		return sqlgate.DDL(dialect)
	}
	if table.Table == "" || table.Column == "" {
		return "", fmt.Errorf("--guard-table and --guard-column must be given together")
	}
	if signed {
		return sqlgate.SignedGuard(dialect, table)
	}
	text, err := sqlgate.Guard(dialect, table)
	if err == nil && dialect == sqlgate.SQLite {
		text = "BEGIN IMMEDIATE;\n" + text + "COMMIT;\n"
	}
	return text, err
}
