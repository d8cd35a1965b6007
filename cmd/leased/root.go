package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// commandTexts has the usage, help and examples of every command, in the order of the help. A section
// starts with `== USAGE`; its first line is the short help. `== Title:` starts a group of the root command.
//
//go:embed commands.txt
var commandTexts string

// command is the code of a command.
type command struct {
	// setUp adds the flags and the function that runs the command.
	setUp func(*cobra.Command)
	// complete completes the first argument in a shell. The default is the name of a file.
	complete func(c *cobra.Command, begun string) []string
}

// commands has the code of every command in commandTexts, except for those that only group others.
var commands = map[string]command{
	"dev":                {setUpDev, nil},
	"serve":              {setUpServe, nil},
	"health":             {setUpHealth, nil},
	"run":                {setUpRun, lockNames},
	"lock":               {setUpLock, lockNames},
	"elect":              {setUpElect, lockNames},
	"acquire":            {setUpAcquire, lockNames},
	"sign":               {setUpSign, lockNames},
	"renew":              {setUpRenew, lockNames},
	"release":            {setUpRelease, lockNames},
	"inspect":            {setUpInspect, lockNames},
	"list":               {setUpList, lockNames},
	"top":                {setUpTop, lockNames},
	"watch":              {setUpWatch, lockNames},
	"break":              {setUpBreak, lockNames},
	"policy show":        {setUpPolicyShow, policyPrefixes},
	"policy set":         {setUpPolicySet, policyPrefixes},
	"policy apply":       {setUpPolicyApply, nil},
	"policy delete":      {setUpPolicyDelete, policyPrefixes},
	"user add":           {setUpUserAdd, nil},
	"user allow":         {setUpUserAllow, userNames},
	"user deny":          {setUpUserDeny, userNames},
	"user check":         {setUpUserCheck, userNames},
	"user list":          {setUpUserList, nil},
	"user remove":        {setUpUserRemove, userNames},
	"user secret add":    {setUpUserSecretAdd, userNames},
	"user secret remove": {setUpUserSecretRemove, userNames},
	"certs":              {setUpCerts, nil},
	"keys new":           {setUpKeysNew, nil},
	"keys public":        {setUpKeysPublic, nil},
	"cluster status":     {setUpClusterStatus, nil},
	"cluster join":       {setUpClusterJoin, nil},
	"cluster remove":     {setUpClusterRemove, memberIDs},
	"cluster transfer":   {setUpClusterTransfer, nil},
	"cluster recover":    {setUpClusterRecover, nil},
	"snapshot save":      {setUpSnapshotSave, nil},
	"snapshot inspect":   {setUpSnapshotInspect, nil},
	"snapshot restore":   {setUpSnapshotRestore, nil},
	"redis status":       {setUpRedisStatus, nil},
	"redis fleet show":   {setUpRedisStatus, nil},
	"redis fleet set":    {setUpFleetSet, nil},
	"redis fleet remove": {setUpFleetRemove, nil},
	"redis init":         {setUpRedisInit, nil},
	"postgres ddl":       {setUpPostgresDDL, nil},
	"postgres import":    {setUpPostgresImport, lockNames},
	"postgres export":    {setUpPostgresExport, lockNames},
	"gate ddl":           {setUpGateDDL, nil},
	"gate proxy":         {setUpGateProxy, nil},
	"gate proxy flights": {setUpProxyFlights, nil},
	"gate proxy reopen":  {setUpProxyReopen, nil},
	"gate tfstate":       {setUpGateTFState, nil},
	"gate reset":         {setUpGateReset, lockNames},
	"bench":              {setUpBench, nil},
	"demo pause":         {setUpDemoPause, nil},
	"demo load":          {setUpDemoLoad, nil},
	"version":            {setUpVersion, nil},
}

// newRoot returns the root command with all commands in the order of the help.
func newRoot() *cobra.Command {
	cobra.EnableCommandSorting = false
	root := &cobra.Command{
		Use:   "leased",
		Short: "Leases with fencing tokens",
		Long: "leased grants leases with fencing tokens, in two modes: efficiency (Redlock) and correctness\n" +
			"(Raft). A lock without a gate is only a hint: pass the token with each write to a gate that\n" +
			"refuses older tokens.\n\n" + exitCodes,
		SilenceUsage: true, SilenceErrors: true,
	}
	root.SetFlagErrorFunc(flagError)
	addCommands(root)
	root.AddCommand(hiddenCommands()...)
	root.InitDefaultCompletionCmd()
	checkUsage(root)
	root.PersistentFlags().String(postgresFlag, "", postgresUsage)
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		warnUnknownVariables(c, os.Environ())
		return checkPostgres(c)
	}
	return root
}

// commandPath matches the names of a command and of its parents at the beginning of its usage.
var commandPath = regexp.MustCompile(`^[a-z]+( [a-z]+)*`)

// addCommands adds the commands of commandTexts.
func addCommands(root *cobra.Command) {
	added := map[string]*cobra.Command{"": root}
	group := ""
	for section := range strings.SplitSeq(strings.TrimPrefix(commandTexts, "== "), "\n== ") {
		usage, text, _ := strings.Cut(section, "\n")
		if strings.HasSuffix(usage, ":") {
			group = usage
			root.AddGroup(&cobra.Group{ID: group, Title: group})
			continue
		}
		path := commandPath.FindString(usage)
		parent := path[:max(0, strings.LastIndex(path, " "))]
		c := &cobra.Command{Use: strings.TrimSpace(usage[len(parent):]), Args: cobra.NoArgs}
		text, c.Example, _ = strings.Cut(strings.TrimRight(text, "\n"), "\n\nExamples:\n")
		c.Short, c.Long, _ = strings.Cut(text, "\n\n")
		if parent == "" {
			c.GroupID = group
		}
		added[parent].AddCommand(c)
		added[path] = c
		if own, ok := commands[path]; ok {
			own.setUp(c)
			addCompletion(c, own.complete)
		}
	}
}

// checkUsage makes a wrong number of arguments, and an unknown command, usage
// errors.
func checkUsage(c *cobra.Command) {
	for _, sub := range c.Commands() {
		checkUsage(sub)
	}
	if c.HasSubCommands() && !c.Runnable() {
		c.Args = cobra.ArbitraryArgs
		c.RunE = func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.Help()
			}
			meant := ""
			c.SuggestionsMinimumDistance = 2
			if similar := c.SuggestionsFor(args[0]); len(similar) > 0 {
				meant = "did you mean `" + c.CommandPath() + " " + strings.Join(similar, "` or `"+c.CommandPath()+" ") + "`? "
			}
			return usageError(fmt.Errorf("unknown command %q; %ssee `%s --help`", args[0], meant, c.CommandPath()))
		}
		return
	}
	check := c.Args
	c.Args = func(c *cobra.Command, args []string) error {
		if check == nil {
			return nil
		}
		err := check(c, args)
		if err == nil || errors.As(err, new(*codeError)) {
			return err
		}
		return usageError(fmt.Errorf("%w; see `%s --help`", err, c.CommandPath()))
	}
}
