package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/kubegate"
	"github.com/leased-project/leased/storagegate/sqlgate"
)

func setUpGateDDL(c *cobra.Command) {
	var dialect string
	var users []string
	var table sqlgate.GuardedTable
	var maxJump uint64
	var signed bool
	c.RunE = func(c *cobra.Command, _ []string) error {
		if dialect == "" {
			return usageError(fmt.Errorf("--dialect is required: postgres, mysql, sqlite or kubernetes"))
		}
		var text string
		var err error
		if dialect == "kubernetes" {
			text, err = gatePolicy(table, fencing.Token(maxJump), signed, users)
		} else {
			text, err = gateSQL(dialect, table, fencing.Token(maxJump), c.Flags().Changed("max-jump"), signed, users)
		}
		if err != nil {
			return usageError(err)
		}
		_, err = fmt.Fprint(c.OutOrStdout(), text)
		return err
	}
	c.Flags().StringVar(&dialect, "dialect", "", "database: postgres, mysql, sqlite; or kubernetes (required)")
	c.Flags().StringVar(&table.Table, "guard-table", "", "print triggers that guard this table")
	c.Flags().StringVar(&table.Column, "guard-column", "", "column with the resource name of a row")
	c.Flags().StringVar(&table.Prefix, "guard-prefix", "", "prefix of the resource name, before the column's value")
	c.Flags().BoolVar(&table.AllowUnfenced, "guard-allow-unfenced", false, "let rows be written without a token as "+
		"long as their resource was never fenced")
	c.Flags().StringArrayVar(&users, "guard-user", nil, "also require tokens from this user; can be repeated (kubernetes)")
	c.Flags().BoolVar(&signed, "signed", false, "print the SQL for signed tokens (postgres)")
	c.Flags().Uint64Var(&maxJump, "max-jump", uint64(fencing.DefaultMaxJump), "print SQL that sets the largest allowed "+
		"difference between a token and the mark; 9007199254740991 allows any")
}

func gatePolicy(table sqlgate.GuardedTable, maxJump fencing.Token, signed bool, users []string) (string, error) {
	if table != (sqlgate.GuardedTable{}) || signed {
		return "", fmt.Errorf("the policy guards all objects and cannot verify signatures: --dialect kubernetes takes only " +
			"--guard-user and --max-jump")
	}
	return kubegate.Policy(fencing.Rule{MaxJump: maxJump}, users...)
}

func gateSQL(name string, table sqlgate.GuardedTable, maxJump fencing.Token, setMaxJump, signed bool,
	users []string) (string, error) {
	dialect, err := sqlgate.ParseDialect(name)
	if err != nil {
		return "", fmt.Errorf("--dialect: %w, or kubernetes", err)
	}
	guard := table != sqlgate.GuardedTable{}
	switch {
	case users != nil:
		return "", fmt.Errorf("--guard-user is for --dialect kubernetes; a database guards a table with --guard-table")
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
