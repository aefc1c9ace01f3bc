// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podview_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
)

// rule returns a restart policy rule for exit codes.
func rule(action corev1.ContainerRestartRuleAction, op corev1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) corev1.ContainerRestartRule {
	return corev1.ContainerRestartRule{Action: action, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes}}
}

const (
	restart    = corev1.ContainerRestartRuleActionRestart
	restartAll = corev1.ContainerRestartRuleActionRestartAllContainers
	in         = corev1.ContainerRestartRuleOnExitCodesOpIn
	notIn      = corev1.ContainerRestartRuleOnExitCodesOpNotIn
)

func TestShouldRestart(t *testing.T) {
	tests := map[string]struct {
		pod   corev1.RestartPolicy
		own   corev1.ContainerRestartPolicy // empty: no policy of the container
		rules []corev1.ContainerRestartRule
		want  map[int32]bool // by exit code
	}{
		"pod Always":         {pod: corev1.RestartPolicyAlways, want: map[int32]bool{0: true, 1: true}},
		"pod OnFailure":      {pod: corev1.RestartPolicyOnFailure, want: map[int32]bool{0: false, 1: true, 137: true}},
		"pod Never":          {pod: corev1.RestartPolicyNever, want: map[int32]bool{0: false, 1: false}},
		"pod without policy": {pod: "Sometimes", want: map[int32]bool{0: true, 1: true}},

		"own Always":               {pod: corev1.RestartPolicyNever, own: corev1.ContainerRestartPolicyAlways, want: map[int32]bool{0: true, 1: true}},
		"own OnFailure":            {pod: corev1.RestartPolicyAlways, own: corev1.ContainerRestartPolicyOnFailure, want: map[int32]bool{0: false, 1: true}},
		"own Never":                {pod: corev1.RestartPolicyAlways, own: corev1.ContainerRestartPolicyNever, want: map[int32]bool{0: false, 1: false}},
		"unknown container policy": {pod: corev1.RestartPolicyNever, own: "Sometimes", want: map[int32]bool{0: false, 1: false}},

		"matching rule": {
			own: corev1.ContainerRestartPolicyNever, rules: []corev1.ContainerRestartRule{rule(restart, in, 42, 43)},
			want: map[int32]bool{0: false, 1: false, 42: true, 43: true, 44: false},
		},
		"NotIn rule": {
			own: corev1.ContainerRestartPolicyNever, rules: []corev1.ContainerRestartRule{rule(restart, notIn, 0, 1)},
			want: map[int32]bool{0: false, 1: false, 2: true},
		},
		"RestartAllContainers rule": {
			own: corev1.ContainerRestartPolicyNever, rules: []corev1.ContainerRestartRule{rule(restartAll, in, 88)},
			want: map[int32]bool{0: false, 88: true},
		},
		"rule without container policy": {
			pod: corev1.RestartPolicyNever, rules: []corev1.ContainerRestartRule{rule(restart, in, 42)},
			want: map[int32]bool{42: false},
		},
		"rule overrides policy": {
			own: corev1.ContainerRestartPolicyOnFailure, rules: []corev1.ContainerRestartRule{rule(restart, in, 0)},
			want: map[int32]bool{0: true, 1: true},
		},
		"first matching rule decides": {
			own: corev1.ContainerRestartPolicyNever, rules: []corev1.ContainerRestartRule{rule("Ignore", in, 42), rule(restart, in, 42, 43)},
			want: map[int32]bool{42: false, 43: true},
		},
		"no matching rule": {
			own: corev1.ContainerRestartPolicyNever, rules: []corev1.ContainerRestartRule{{Action: restart}, rule(restart, "Near", 42)},
			want: map[int32]bool{0: false, 42: false},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := &corev1.Container{RestartPolicyRules: tt.rules}
			if tt.own != "" {
				c.RestartPolicy = &tt.own
			}
			for code, want := range tt.want {
				assert.Equal(t, want, podview.ShouldRestart(&corev1.PodSpec{RestartPolicy: tt.pod}, c, code), "exit code %d", code)
			}
		})
	}
}

func TestRequestsRestartAll(t *testing.T) {
	asks := &corev1.Container{RestartPolicy: new(corev1.ContainerRestartPolicyNever), RestartPolicyRules: []corev1.ContainerRestartRule{
		rule(restart, in, 42), rule(restartAll, in, 88),
	}}
	for _, tt := range []struct {
		c     *corev1.Container
		state cri.ContainerState
		code  int32
		want  bool
	}{
		{asks, cri.ContainerExited, 88, true},
		{asks, cri.ContainerExited, 42, false},
		{asks, cri.ContainerExited, 0, false},
		{asks, cri.ContainerRunning, 88, false},
		{asks, cri.ContainerUnknown, 88, false},
		{&corev1.Container{RestartPolicyRules: asks.RestartPolicyRules}, cri.ContainerExited, 88, false},
	} {
		assert.Equal(t, tt.want, podview.RequestsRestartAll(tt.c, &cri.Container{State: tt.state, ExitCode: tt.code}),
			fmt.Sprintf("%s with %d", tt.state, tt.code))
	}
}
