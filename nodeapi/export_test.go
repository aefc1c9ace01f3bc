// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"log/slog"
	"net/url"

	corev1 "k8s.io/api/core/v1"
)

// LogOptions returns the options in a query of /containerLogs, or the status of a refusal.
func LogOptions(query url.Values) (o *corev1.PodLogOptions, status int, err error) {
	return parseLogOptions(query)
}

// LevelOf returns the level of slog for a verbosity of klog.
func LevelOf(verbosity string) (slog.Level, error) { return parseVerbosity(verbosity) }
