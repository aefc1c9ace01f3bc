// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/costtest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podenv"
	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// expansionLimit is the memory limit for building the config of a container: the size limit of 2 MiB, the garbage of a
// growing buffer and some reserve.
func expansionLimit() costtest.Limit { return costtest.Limit{Bytes: 16 << 20} }

// exponentialVariables returns variables, each ten times as long as the previous variable.
func exponentialVariables(levels int) []corev1.EnvVar {
	env := []corev1.EnvVar{{Name: "A0", Value: "0123456789"}}
	for i := range levels {
		env = append(env, corev1.EnvVar{Name: fmt.Sprintf("A%d", i+1), Value: strings.Repeat(fmt.Sprintf("$(A%d)", i), 10)})
	}
	return env
}

// refuseTooLarge builds the config of a container that exceeds a limit, checks the cost, and returns the error.
func refuseTooLarge(t *testing.T, p *corev1.Pod, l podspec.Launch) string {
	t.Helper()
	var err error
	costtest.Check(t, expansionLimit(), func() {
		_, err = podspec.Container(p, &p.Spec.Containers[0], l, podspec.Options{})
	})
	require.Error(t, err)
	assert.IsType(t, &field.Error{}, err)
	assert.Less(t, len(err.Error()), 4<<10)
	return err.Error()
}

// A manifest of 866 bytes, whose variables refer to each other, once exhausted the agent's memory at each start. Now the
// error names the variable.
func TestContainerRefusesExponentialVariables(t *testing.T) {
	p := podtest.Pod(t)
	p.Spec.Containers[0].Env = exponentialVariables(9)
	assert.Equal(t, `spec.containers[0].env[5].value: Too long: variable "A5" may not be more than 131071 bytes with its name`,
		refuseTooLarge(t, p, podspec.Launch{}))
}

// The size of expanded variables is limited in a variable, the command, the arguments and a subPathExpr, for each and in total.
func TestContainerLimitsExpandedSizes(t *testing.T) {
	big := strings.Repeat("x", 100_000)
	data := map[string]string{"BIG": big, "KEY": strings.Repeat("x", podenv.MaxArgument)}
	l := launch()
	l.References.ConfigMaps = map[string]*corev1.ConfigMap{"m": {Data: data}, "s": {Data: map[string]string{"BIG": big}}}
	l.References.Secrets = map[string]*corev1.Secret{"s": {Data: map[string][]byte{"KEY": []byte(data["KEY"])}}}
	l.Volumes["v"] = podspec.Volume{HostPath: "/v"}
	const c = "spec.containers[0]."
	for _, test := range []struct{ container, want string }{
		{"args: [a, '$(BIG)$(BIG)']", c + "args[1]: Too long: may not be more than 131071 bytes once it is expanded"},
		{"command: ['$(BIG)$(BIG)']", c + "command[0]: Too long: may not be more than 131071 bytes once it is expanded"},
		{
			"args: [" + strings.Repeat("$(BIG),", 20) + "]",
			c + "args[19]: Too long: arguments and environment may not be more than 2097152 bytes in all",
		},
		{"{env: [{name: X, valueFrom: {configMapKeyRef: {name: m, key: KEY}}}]}", c + `env[0].valueFrom: Too long: variable "X"`},
		{"{env: [{name: X, valueFrom: {secretKeyRef: {name: s, key: KEY}}}]}", c + `env[0].valueFrom: Too long: variable "X"`},
		{"{envFrom: [{configMapRef: {name: m}}]}", c + `envFrom[0].configMapRef: Too long: variable "KEY"`},
		{"{envFrom: [{prefix: P_, secretRef: {name: s}}]}", c + `envFrom[0].secretRef: Too long: variable "P_KEY"`},
		{"{envFrom: [" + strings.Repeat("{configMapRef: {name: s}},", 30) + "]}", c + "envFrom[20].configMapRef: Too long: arguments and environment"},
		{"{env: [{name: X, valueFrom: {fieldRef: {fieldPath: \"metadata.annotations['big']\"}}}]}", c + `env[0].valueFrom: Too long: variable "X"`},
		{"volumeMounts: [{name: v, mountPath: /v, subPathExpr: $(BIG)}]", c + "volumeMounts[0].subPathExpr: Too long: may not be more than 4095 bytes"},
	} {
		p := podtest.Pod(t, "", test.container)
		p.Annotations = map[string]string{"big": data["KEY"]}
		if len(p.Spec.Containers[0].EnvFrom) == 0 && len(p.Spec.Containers[0].Env) == 0 {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "BIG", Value: big}}
		}
		got := refuseTooLarge(t, p, l)
		assert.True(t, strings.HasPrefix(got, test.want), "got  %s\nwant %s", got, test.want)
	}
}

// Variables of the node count against the limit, so that the kernel can start the container.
func TestContainerCountsNodeVariablesAgainstLimit(t *testing.T) {
	l := launch()
	l.Env = []cri.EnvVar{{Name: "N", Value: strings.Repeat("x", podenv.MaxArgument)}}
	assert.Contains(t, refuseTooLarge(t, podtest.Pod(t), l), `spec.containers[0].env: Too long: variable "N"`)
}

// The largest variable and argument that Linux accepts are accepted.
func TestContainerAcceptsLargestVariableAndArgument(t *testing.T) {
	p := podtest.Pod(t)
	p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "X", Value: strings.Repeat("x", podenv.MaxArgument-len("X=")-1)}}
	p.Spec.Containers[0].Args = []string{strings.Repeat("x", podenv.MaxArgument-1)}
	assert.Len(t, container(t, p, podspec.Launch{}, podspec.Options{}).Args, 1)

	p.Spec.Containers[0].Env[0].Value += "x"
	assert.Contains(t, refuseTooLarge(t, p, podspec.Launch{}), `env[0].value: Too long: variable "X"`)
}

// The config of an environment with any three variables and an argument is cheap to build, or refused.
func FuzzEnvironment(f *testing.F) {
	ten := func(s string) string { return strings.Repeat(s, 10) }
	f.Add(ten("$(C)"), ten("$(A)"), ten("$(B)"), "$(C)$(", uint8(30))
	f.Fuzz(func(t *testing.T, a, b, c, arg string, rounds uint8) {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Args: []string{arg, arg}}}}}
		podapi.Default(p)
		one := &p.Spec.Containers[0]
		for range rounds {
			one.Env = append(one.Env, corev1.EnvVar{Name: "A", Value: a}, corev1.EnvVar{Name: "B", Value: b}, corev1.EnvVar{Name: "C", Value: c})
		}
		costtest.Check(t, expansionLimit(), func() {
			config, err := podspec.Container(p, one, podspec.Launch{}, podspec.Options{})
			size := 0
			for _, e := range config.Env {
				size += len(e.Name) + len(e.Value)
			}
			for _, word := range config.Args {
				size += len(word)
			}
			if size > podenv.MaxArguments {
				t.Errorf("%d bytes, %v", size, err)
			}
		})
	})
}
