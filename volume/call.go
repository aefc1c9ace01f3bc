// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"

	"github.com/seed81659283/nodeagent/internal/volume/plan"
	"github.com/seed81659283/nodeagent/internal/volume/record"
)

// pluginCall is the call of a plugin for one step, such as a set-up. It has copies of all state that the call needs, and so runs
// without a lock.
type pluginCall struct {
	opts     *Options
	resolver resolver
	events   eventRecorder

	kind       plan.Step
	pod        string // namespace/name; empty for an Unstage
	volumeName string // name in the pod; for an Unstage the name on disk
	volume     Volume
	prior      priorState
}

// priorState is the state of the volume or device when the step started.
type priorState struct {
	recorded record.Volume
	mount    Mount
	claimed  *claimed
	size     int64 // bytes of the device on this node; zero: unknown
	absent   bool  // nothing of the volume or device was on the node
}

// result is the outcome of a plugin call.
type result struct {
	mount   Mount
	claimed *claimed // claim and PV as fetched by the call; nil: not fetched
	size    int64    // size in bytes after an expansion; zero: unknown
	path    string   // device path that the Attacher returned
	err     error
}

// callPlugin runs a step, such as set up or unstage, with the plugin of the volume. It blocks until the plugin returns. The
// result has the error.
func (pc *pluginCall) callPlugin(ctx context.Context) (res result) {
	plugin, ok := pc.opts.Plugins[pc.volume.Plugin]
	if !ok {
		res.err = fmt.Errorf("no plugin %s", pc.volume.Plugin)
		return res
	}
	switch pc.kind {
	case plan.TearDown:
		res.err = pc.tearDownVolume(ctx, plugin)
	case plan.Unstage:
		res.err = pc.unstageDevice(ctx, plugin)
	case plan.Stage:
		res.path, res.err = pc.stageDevice(ctx, plugin)
	default:
		pc.setUpOrUpdate(ctx, plugin, &res)
	}
	return res
}

// markFinal wraps err in a [FinalError] if the volume was absent from the node before the step. err is from a step that failed
// before it changed the node.
func (pc *pluginCall) markFinal(err error) error {
	if pc.prior.absent {
		return &FinalError{Err: err}
	}
	return err
}
