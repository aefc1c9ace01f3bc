// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import "log/slog"

// Options change how a [Runtime] works. The zero value is the production default.
type Options struct {
	// IgnoreUnsupported starts containers whose config asks for what a plain process cannot have, such as a mount at
	// another path, and logs a warning for each such field. By default they are refused.
	IgnoreUnsupported bool
	// Logger receives what no caller can be told, such as leftovers of a crash. Nil discards it.
	Logger *slog.Logger
}

func (o Options) logger() *slog.Logger {
	if o.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Logger
}
