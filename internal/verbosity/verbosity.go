// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package verbosity converts the verbosity of a kubelet's log into a level of log/slog. It parses no text.
package verbosity

import "log/slog"

// Level returns the log level for a verbosity of klog: up to 2 it is Info, 3 and 4 are Debug, and each larger verbosity is one level lower.
func Level(verbosity uint64) slog.Level {
	switch {
	case verbosity < 3:
		return slog.LevelInfo
	case verbosity < 5:
		return slog.LevelDebug
	}
	return slog.LevelDebug - slog.Level(min(verbosity-4, 100))
}
