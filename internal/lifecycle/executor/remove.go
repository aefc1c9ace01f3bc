// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
)

// remover removes containers and sandboxes from the runtime.
type remover struct {
	node *Node
	logs *logs
}

// removeContainers removes the containers of a.Remove. A container that is to be replaced by another of its attempt, and cannot be removed,
// keeps its name in the runtime: its replacement then gets the next attempt. So containerd 2.4 leaves a container whose start was abandoned
// just after its task was made.
func (r *remover) removeContainers(ctx context.Context, observed cri.Pod, a *plan.Actions) error {
	var errs []error
	for _, id := range a.RemoveContainers {
		old := containerOf(observed, id)
		err := r.removeContainer(ctx, observed, old)
		if err == nil {
			continue
		}
		errs = append(errs, err)
		for i := range a.Start {
			if s := &a.Start[i]; s.CreatedID == "" && s.Container.Name == old.Name && s.Attempt == old.Attempt {
				s.Attempt++
			}
		}
	}
	return errors.Join(errs...)
}

// containerOf returns a container that the runtime has.
func containerOf(observed cri.Pod, id string) *cri.Container {
	i := slices.IndexFunc(observed.Containers, func(c cri.Container) bool { return c.ID == id })
	return &observed.Containers[i]
}

// removeContainer removes a container that has exited, and before that its logs, which no record would name any more.
func (r *remover) removeContainer(ctx context.Context, observed cri.Pod, c *cri.Container) error {
	if err := r.logs.remove(observed, c); err != nil {
		return fmt.Errorf("remove logs of container %s: %w", c.ID, err)
	}
	return r.node.Runtime.RemoveContainer(ctx, c.ID)
}

// removeSandboxes removes sandboxes, in the order of ids.
func (r *remover) removeSandboxes(ctx context.Context, ids []string) error {
	var errs []error
	for _, id := range ids {
		errs = append(errs, r.node.Runtime.RemoveSandbox(ctx, id))
	}
	return errors.Join(errs...)
}
