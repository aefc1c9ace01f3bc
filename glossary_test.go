// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeagent_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/repocheck"
)

// glossary maps words that this repository once used to the terms of Kubernetes. The documentation of repocheck.Glossary has
// the form.
const glossary = `
# Predicates.
(tell|say)s? whether                       => reports whether

# Pods and containers.
last words                                 => termination message
(pod|container)s? proper                   => regular container
(life|lives) of (a|one|the|its|every|each) container => container instance
(newest|earlier|former|next|previous|older) (life|lives) => container instance, attempt
unhooked                                   => postStart pending
pods? that (is|are) no more                => orphaned pod
pods? (that )?only the runtime knows       => orphaned pod
(give|gives|gave|giving) (its|the|their) network back => tears down the network
lends? its (place|slot)                    => releases its start slot
patience                                   => maxStopFailures, a limit, or a timeout

# Resources.
thousandths of (a|an|one) (cpu|core)       => millicores
(pod|container) is worth                   => QoS class, OOM score adjustment, effective requests

# Probes and images.
containers how they are                    => runs liveness, readiness and startup probes
pulls? as anybody                          => anonymous pull

# Code.
vocabular(y|ies)                           => types and interfaces
make(s|ing)? no sense                      => is invalid, must be
is no flag                                 => unexpected argument

# Tests.
(story|stories|tale|tales|diary|diaries)   => scenario
random walks?                              => random-operations test
`

func TestGlossary(t *testing.T) {
	g, err := repocheck.ParseGlossary(glossary)
	require.NoError(t, err)
	report(t, g.Check(load(t), "glossary_test.go", "CHANGELOG.md")) // CHANGELOG.md contains renamed names
}
