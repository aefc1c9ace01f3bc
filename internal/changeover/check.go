// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package changeover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
)

// Check reads the node with [Read], writes the report about it to out as text, or as JSON if format is "json", and returns the exit code of the report.
// It returns [ExitUnread] with each error. load returns the configuration. If only values are not supported, its documents have the remaining fields.
func Check(ctx context.Context, format string, load func() (kubeletconfig.Documents, error), out io.Writer) (code int, err error) {
	d, settings := load()
	if settings != nil && d.Kubelet.Kind == "" && d.Node.Kind == "" {
		return ExitUnread, settings // no document was decoded
	}
	n, err := Read(ctx, &d, settings, Options{})
	if err != nil {
		return ExitUnread, errors.Join(err, settings)
	}
	report := Decide(n)
	text := report.Text()
	if format == formatJSON {
		content, err := json.MarshalIndent(report, "", "  ")
		if err != nil {
			return ExitUnread, err
		}
		text = string(content) + "\n"
	}
	if _, err := io.WriteString(out, text); err != nil {
		return ExitUnread, err
	}
	return report.ExitCode(), nil
}

const formatJSON = "json"

// CutFormat returns the value of the flag -o or --output, which is "text" or "json", and the other arguments. A missing flag means text.
func CutFormat(args []string) (format string, rest []string, err error) {
	format = "text"
	for i := 0; i < len(args); i++ {
		name, value, hasValue := strings.Cut(args[i], "=")
		if name != "-o" && name != "--output" {
			rest = append(rest, args[i])
			continue
		}
		if !hasValue {
			if i++; i == len(args) {
				return "", nil, fmt.Errorf("%s: the value is missing, want text or json", name)
			}
			value = args[i]
		}
		if value != "text" && value != formatJSON {
			return "", nil, fmt.Errorf("%s: %q is neither text nor json", name, value)
		}
		format = value
	}
	return format, rest, nil
}
