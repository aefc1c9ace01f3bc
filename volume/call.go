// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"

	"github.com/seed81659283/nodeagent/internal/volume/plan"
	"github.com/seed81659283/nodeagent/internal/volume/record"
)

// pluginCall is the call of a plugin for one step. It reads no state that a lock guards.
type pluginCall struct {
	opts     *Options
	resolver resolver
	events   eventRecorder

	kind       plan.Step
	pod        string // namespace/name; empty when a device is unstaged
	volumeName string // in the pod, or on disk when a device is unstaged
	volume     Volume
	before     before
}

// before is the state of the volume when the step started.
type before struct {
	recorded record.Volume
	mount    Mount
	claimed  *claimed
	size     int64 // of the device
	absent   bool  // nothing is there
}

// result is the result of a plugin call.
type result struct {
	mount   Mount
	claimed *claimed // as it was seen; nil: it was not
	size    int64    // that a volume has grown to; zero: it has not
	path    string   // where an Attacher has attached it
	err     error
}

// run calls the plugin.
func (pc *pluginCall) run(ctx context.Context) (r result) {
	plugin, ok := pc.opts.Plugins[pc.volume.Plugin]
	if !ok {
		r.err = fmt.Errorf("there is no plugin %s", pc.volume.Plugin)
		return r
	}
	switch pc.kind {
	case plan.TearDown:
		r.err = pc.tearDown(ctx, plugin)
	case plan.Unstage:
		r.err = pc.unstage(ctx, plugin)
	case plan.Stage:
		r.path, r.err = pc.stage(ctx, plugin)
	default:
		pc.setUp(ctx, plugin, &r)
	}
	return r
}

// nothingMade marks an error that precedes the first effect of the step.
func (pc *pluginCall) nothingMade(err error) error {
	if pc.before.absent {
		return &FinalError{Err: err}
	}
	return err
}
