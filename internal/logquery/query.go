// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package logquery parses and validates the queries that a client of the kubelet's /logs/ sends about the log files and the journal of the
// machine (KEP-2258). It reads no logs.
package logquery

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"time"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits of a query.
const (
	maxTailLines     = 100_000
	maxServiceLength = 256
	maxServices      = 4
)

// Query selects systemd services or a log file, and log lines of the services. Source: kubelet_server_journal.go in pkg/kubelet.
type Query struct {
	Services []string // systemd units without .service, or log files in the log directory
	Files    []string // log files in the log directory
	Limits   Limits
}

// Limits selects lines in the journal of services. The zero value selects all lines.
type Limits struct {
	SinceTime *time.Time
	UntilTime *time.Time
	TailLines *int   // number of last lines
	Boot      *int   // 0 for the current boot, -1 for the previous one
	Pattern   string // PCRE2 expression that lines must match
}

// Parse parses the query parameters of a request for node logs. For a request without parameters it returns a nil Query and
// no errors: the URL path is then the log file.
func Parse(values url.Values) (*Query, field.ErrorList) {
	var q Query
	var all field.ErrorList
	asked, found := values["query"]
	for _, word := range asked {
		switch {
		case strings.ContainsAny(word, `/\`):
			q.Files = append(q.Files, word)
		case strings.TrimSpace(word) != "":
			q.Services = append(q.Services, word)
		}
	}
	if found && len(q.Files)+len(q.Services) == 0 {
		all = append(all, field.Invalid(field.NewPath("query"), asked, "may not be empty"))
	}
	q.Limits.SinceTime = parseTime(values, "sinceTime", &all)
	q.Limits.UntilTime = parseTime(values, "untilTime", &all)
	q.Limits.Boot = parseInt(values, "boot", &all)
	q.Limits.TailLines = parseInt(values, "tailLines", &all)
	q.Limits.Pattern = values.Get("pattern")
	if len(all) > 0 || len(q.Files)+len(q.Services) == 0 && q.Limits == (Limits{}) {
		return nil, all
	}
	return &q, nil
}

func parseTime(values url.Values, name string, all *field.ErrorList) *time.Time {
	value := values.Get(name)
	if value == "" {
		return nil
	}
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		*all = append(*all, field.Invalid(field.NewPath(name), value, "invalid time format"))
		return nil
	}
	return &t
}

func parseInt(values url.Values, name string, all *field.ErrorList) *int {
	value := values.Get(name)
	if value == "" {
		return nil
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		*all = append(*all, field.Invalid(field.NewPath(name), value, err.Error()))
		return nil
	}
	return &n
}

// Validate returns the errors of q. If q selects a log file, Validate also returns the error of stat for the name of the
// file.
func (q *Query) Validate(stat func(name string) error) field.ErrorList {
	at := field.NewPath("query")
	var all field.ErrorList
	for _, name := range q.Services {
		if err := validateService(name); err != nil {
			all = append(all, field.Invalid(at, name, err.Error()))
		}
	}
	if len(q.Services) > maxServices {
		all = append(all, field.TooMany(at, len(q.Services), maxServices))
	}
	switch {
	case len(q.Files)+len(q.Services) == 0:
		all = append(all, field.Required(at, "cannot be empty with options"))
	case len(q.Files) > 0 && len(q.Services) > 0:
		all = append(all, field.Invalid(at, fmt.Sprintf("%v, %v", q.Files, q.Services), "cannot specify a file and service"))
	case len(q.Files) > 1:
		all = append(all, field.Invalid(at, q.Files, "cannot specify more than one file"))
	case len(q.Files) == 1 && q.Limits != (Limits{}):
		all = append(all, field.Invalid(at, q.Files, "cannot specify file with options"))
	case len(q.Files) == 1:
		if err := stat(q.Files[0]); err != nil {
			all = append(all, field.Invalid(at, q.Files, err.Error()))
		}
	}
	return append(all, q.Limits.validateLimits()...)
}

func (l *Limits) validateLimits() (all field.ErrorList) {
	if l.SinceTime != nil && l.UntilTime != nil && l.SinceTime.After(*l.UntilTime) {
		all = append(all, field.Invalid(field.NewPath("untilTime"), l.UntilTime, "must be after `sinceTime`"))
	}
	if l.Boot != nil && *l.Boot > 0 {
		all = append(all, field.Invalid(field.NewPath("boot"), *l.Boot, "must be less than 1"))
	}
	if l.TailLines != nil {
		if why := utilvalidation.IsInRange(*l.TailLines, 0, maxTailLines); why != nil {
			all = append(all, field.Invalid(field.NewPath("tailLines"), *l.TailLines, why[0]))
		}
	}
	if _, err := syntax.Parse(l.Pattern, syntax.Perl); err != nil {
		all = append(all, field.Invalid(field.NewPath("pattern"), l.Pattern, err.Error()))
	}
	return all
}

var unsafeInService = regexp.MustCompile(`[^a-zA-Z\-_.:0-9@]`)

// validateService returns an error if name cannot be a systemd unit name.
func validateService(name string) error {
	if len(name) > maxServiceLength {
		return fmt.Errorf("length must be less than %d", maxServiceLength)
	}
	// journalctl would treat some of these characters as a pattern or a flag.
	if unsafeInService.MatchString(name) {
		return errors.New("input contains unsupported characters")
	}
	return nil
}

// timeLayout is a time format that journalctl accepts.
const timeLayout = "2006-1-2 15:4:5"

// JournalArguments returns the arguments with which journalctl prints the logs of services within q.Limits. Each value from
// q follows a fixed flag, so that journalctl cannot take the value for a flag.
func (q *Query) JournalArguments(services []string) []string {
	args := []string{"--utc", "--no-pager", "--output=short-precise"}
	if q.Limits.SinceTime != nil {
		args = append(args, "--since="+q.Limits.SinceTime.UTC().Format(timeLayout)+" UTC")
	}
	if q.Limits.UntilTime != nil {
		args = append(args, "--until="+q.Limits.UntilTime.UTC().Format(timeLayout)+" UTC")
	}
	if q.Limits.TailLines != nil {
		args = append(args, "--pager-end", fmt.Sprintf("--lines=%d", *q.Limits.TailLines))
	}
	for _, name := range services {
		args = append(args, "--unit="+name)
	}
	if q.Limits.Pattern != "" {
		args = append(args, "--grep="+q.Limits.Pattern)
	}
	if q.Limits.Boot != nil {
		args = append(args, "--boot", strconv.Itoa(*q.Limits.Boot))
	}
	return args
}
