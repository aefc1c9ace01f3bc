// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process/internal/shim"
	"github.com/seed81659283/nodeagent/internal/crilimits"
)

// UpdateContainer changes the resources of a container, and returns when the cgroup of a running container has the new limits. Its
// processes leave CPUs and NUMA nodes that are not in the new sets. A field that is zero in resources keeps its value, and so does
// OOMScoreAdj. A container that has not started gets the new limits at its start. Annotations are ignored.
//
// Without Options.Cgroups the error wraps [errors.ErrUnsupported]. After an error of the cgroup, some limits may have been written,
// and List returns the previous resources.
func (r *Runtime) UpdateContainer(ctx context.Context, id string, resources *cri.Resources, _ map[string]string) error {
	c, err := r.findContainer(id)
	if err == nil {
		err = r.updateContainer(ctx, c, resources)
	}
	return wrapError("UpdateContainer", id, err)
}

func (r *Runtime) updateContainer(ctx context.Context, ctr *container, change *cri.Resources) error {
	switch {
	case r.options.Cgroups == nil:
		return fmt.Errorf("Options.Cgroups is nil: change the resources of a plain process: %w", errors.ErrUnsupported)
	case ctr.Cgroup == "":
		return errors.New("the container has no cgroup, because it was created without Options.Cgroups: create the container again")
	}
	if err := ctr.lockOp(ctx); err != nil {
		return err
	}
	defer ctr.unlockOp()
	r.mu.Lock()
	err := r.refreshState(ctr)
	record, isRemoved, state := ctr.containerRecord, ctr.removed, ctr.State
	r.mu.Unlock()
	if isRemoved {
		return cri.ErrNotFound
	}
	if err != nil {
		return err
	}
	// The caller holds ctr.opLock, so that nothing else writes Resources and Limits.
	record.Resources = crilimits.Merge(ctr.Resources, change)
	if ctr.Resources != nil {
		record.Resources.OOMScoreAdj = ctr.Resources.OOMScoreAdj
	}
	if record.Limits, err = crilimits.Convert(record.Resources); err != nil {
		return err
	}
	if state == cri.ContainerRunning || state == cri.ContainerUnknown {
		if err := r.options.Cgroups.Apply(ctx, ctr.Cgroup, record.Limits); err != nil {
			return err
		}
	}
	if err := shim.WriteRecord(filepath.Join(ctr.dir, recordFile), record.asCreated()); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	ctr.Resources, ctr.Limits = record.Resources, record.Limits
	return nil
}

// asCreated returns the record of a container without the state, which the records of its shim have.
func (c containerRecord) asCreated() containerRecord {
	c.State, c.ExitCode, c.Reason, c.Message = cri.ContainerCreated, 0, "", ""
	c.StartedAt, c.FinishedAt = time.Time{}, time.Time{}
	return c
}

// UpdateSandbox changes nothing: a sandbox is a record, and its containers have the limits. Without Options.Cgroups the error wraps
// [errors.ErrUnsupported].
func (r *Runtime) UpdateSandbox(_ context.Context, id string, _, _ *cri.Resources) error {
	_, err := r.findSandbox(id)
	if err == nil && r.options.Cgroups == nil {
		err = fmt.Errorf("Options.Cgroups is nil: change the resources of plain processes: %w", errors.ErrUnsupported)
	}
	return wrapError("UpdateSandbox", id, err)
}
