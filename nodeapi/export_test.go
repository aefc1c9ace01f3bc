// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"log/slog"
	"net"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// LogOptions returns the options in a query of /containerLogs, or the status of a refusal.
func LogOptions(query url.Values) (o *corev1.PodLogOptions, status int, err error) {
	return parseLogOptions(query)
}

// LevelOf returns the level of slog for a verbosity of klog.
func LevelOf(verbosity string) (slog.Level, error) { return parseVerbosity(verbosity) }

// RunHealthzOn serves the page /healthz on the listeners that listen returns. It retries after a millisecond.
func RunHealthzOn(ctx context.Context, listen func() (net.Listener, error), logger *slog.Logger) error {
	return runHealthz(ctx, listen, time.Millisecond, logger)
}
