// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/logs"
)

// rotateLogs makes the engine that keeps the logs of running containers within their size. A runtime that cannot reopen logs keeps them whole.
func (a *Agent) rotateLogs() error {
	reopener, ok := a.runtime.(cri.LogReopener)
	if !ok || a.options.Ephemeral {
		return nil
	}
	policy, err := a.config.Kubelet.LogPolicy()
	if err != nil {
		return err
	}
	rotator, err := logs.NewRotator(reopener, logs.RotatorOptions{Policy: policy, Logger: a.log})
	if err != nil {
		return fmt.Errorf("containerLogMaxFiles: %w", err)
	}
	a.generator.Notify(func(...string) {
		pods, _ := a.generator.Pods() // the pods of the last list
		rotator.Set(logs.Running(pods))
	})
	a.add("log rotation", rotator.Run)
	return nil
}
