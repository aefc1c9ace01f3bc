// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package process

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/seed81659283/nodeagent/cri"
)

// Runtime requires Linux; on other systems Open never returns one.
type Runtime struct {
	cri.Runtime
	cri.PodLister
	cri.EventStreamer
	cri.Execer
	cri.SessionRunner
	cri.LogReopener
	cri.Updater
	cri.StatsLister
	cri.StatusReporter
	cri.Images
	cri.Puller
}

// Main does nothing.
func Main() {}

// Open returns an error that wraps [errors.ErrUnsupported], because the runtime requires Linux.
func Open(string, Options) (*Runtime, error) {
	return nil, fmt.Errorf("open process runtime on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

// Close does nothing.
func (*Runtime) Close() error { return nil }
