// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/seed81659283/nodeagent/cri/logs"
)

// rotateLogs keeps the logs of what runs within their size.
func (a *agent) rotateLogs() error {
	policy := logs.Policy{MaxSize: a.LogMaxSize.Value(), MaxFiles: a.LogMaxFiles}
	rotator, err := logs.NewRotator(a.runtime, logs.RotatorOptions{Policy: policy, Logger: a.log})
	if err != nil {
		return fmt.Errorf("logMaxFiles: %w", err)
	}
	a.generator.Notify(func(...string) {
		pods, _ := a.generator.Pods() // those that are known will do
		rotator.Set(logs.Running(pods))
	})
	a.parts = append(a.parts, rotator.Run)
	return nil
}
