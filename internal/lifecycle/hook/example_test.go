// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hook_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/hook"
)

// shell is a runtime that finds no command.
type shell struct{}

func (shell) ExecSync(context.Context, string, []string, time.Duration) (cri.ExecResult, error) {
	return cri.ExecResult{Stderr: []byte("not found"), ExitCode: 127}, nil
}

func ExampleRunner_Run() {
	c := &corev1.Container{Name: "app", Lifecycle: &corev1.Lifecycle{
		PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"warm-up"}}},
	}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u1"}}

	runner := hook.New(hook.Options{Execer: shell{}})
	call := hook.Call{Pod: pod, Container: c, ContainerID: "c1", PodIP: "10.0.0.7"}
	fmt.Println(runner.Run(context.Background(), call, c.Lifecycle.PostStart))
	// Output:
	// Exec lifecycle hook ([warm-up]) for Container "app" in Pod "web_shop(u1)" failed - error: command 'warm-up' exited with 127: not found, message: "not found"
}
