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

// remover removes exited containers and stopped sandboxes of a pod, with their logs, from the runtime.
type remover struct {
	node *Node
	logs *logs
}

// removeContainers removes the containers in actions.RemoveContainers from the runtime.
func (r *remover) removeContainers(ctx context.Context, observed cri.Pod, actions *plan.Actions) error {
	var errs []error
	for _, id := range actions.RemoveContainers {
		old := findContainer(observed, id)
		err := r.removeContainer(ctx, observed, old)
		if err == nil {
			continue
		}
		errs = append(errs, err)
		for i := range actions.Start {
			if s := &actions.Start[i]; s.CreatedID == "" && s.Container.Name == old.Name && s.Attempt == old.Attempt {
				// The runtime still reserves the name of the container, which contains the attempt number.
				s.Attempt++
			}
		}
	}
	return errors.Join(errs...)
}

// findContainer returns the container of observed with this ID, which must exist.
func findContainer(observed cri.Pod, id string) *cri.Container {
	i := slices.IndexFunc(observed.Containers, func(c cri.Container) bool { return c.ID == id })
	return &observed.Containers[i]
}

// removeContainer removes the log files of an exited container and then the container.
func (r *remover) removeContainer(ctx context.Context, observed cri.Pod, container *cri.Container) error {
	// In the reverse order, an agent that is killed in between would leave log files without a container.
	if err := r.logs.removeLogs(observed, container); err != nil {
		return fmt.Errorf("remove logs of container %s: %w", container.ID, err)
	}
	return r.node.Runtime.RemoveContainer(ctx, container.ID)
}

// removeSandboxes removes the sandboxes with these IDs from the runtime, in order.
func (r *remover) removeSandboxes(ctx context.Context, ids []string) error {
	var errs []error
	for _, id := range ids {
		errs = append(errs, r.node.Runtime.RemoveSandbox(ctx, id))
	}
	return errors.Join(errs...)
}
