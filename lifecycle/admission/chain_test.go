// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle/admission"
)

// admit has the signature of lifecycle.Admit.
type admit func(ctx context.Context, pod *corev1.Pod, others []*corev1.Pod) error

func TestChainCallsChecksInOrderUntilOneRejects(t *testing.T) {
	full, down := errors.New("full"), errors.New("down")
	var called []string
	check := func(name string, err error) admit {
		return func(ctx context.Context, pod *corev1.Pod, others []*corev1.Pod) error {
			require.NoError(t, ctx.Err())
			require.Equal(t, "web", pod.Name)
			require.Len(t, others, 1)
			called = append(called, name)
			return err
		}
	}
	for _, test := range []struct {
		name   string
		checks []admit
		err    error
		called []string
	}{
		{"all admit", []admit{check("a", nil), check("b", nil)}, nil, []string{"a", "b"}},
		{"first check rejects", []admit{check("a", full), check("b", down)}, full, []string{"a"}},
		{"last check rejects", []admit{check("a", nil), check("b", down)}, down, []string{"a", "b"}},
		{"nil checks are skipped", []admit{nil, check("a", nil), nil, check("b", down)}, down, []string{"a", "b"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			called = nil
			pod, others := &corev1.Pod{}, []*corev1.Pod{{}}
			pod.Name = "web"
			err := admission.Chain(test.checks...)(t.Context(), pod, others)
			require.Equal(t, test.err, err)
			require.Equal(t, test.called, called)
		})
	}
}

// Options.Admit of lifecycle is nil if nothing is checked, so Chain without checks returns nil.
func TestChainWithoutChecksIsNil(t *testing.T) {
	require.Nil(t, admission.Chain[admit]())
	require.Nil(t, admission.Chain[admit](nil, nil))
}

// A program may append to its list of checks after the call.
func TestChainKeepsChecksOfTheCall(t *testing.T) {
	rejects := func(context.Context, *corev1.Pod, []*corev1.Pod) error { return errors.New("full") }
	checks := []admit{nil, func(context.Context, *corev1.Pod, []*corev1.Pod) error { return nil }}
	chain := admission.Chain(checks...)
	require.Nil(t, checks[0], "Chain does not modify the caller's list")
	checks[1] = rejects
	require.NoError(t, chain(t.Context(), &corev1.Pod{}, nil))
}
