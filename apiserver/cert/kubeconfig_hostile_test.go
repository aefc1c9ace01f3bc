// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/apiserver/cert"
	"github.com/seed81659283/nodeagent/internal/costtest"
	"github.com/seed81659283/nodeagent/internal/hostile"
)

// A file of less than 1 MiB costs no more than a manifest of that size, with any content.
func TestLoadKubeconfigSurvivesHostileManifests(t *testing.T) {
	texts := map[string]string{}
	for _, m := range hostile.All(1<<20 - 1000) {
		texts[m.Name] = string(m.Text)
	}
	aliases := "a0: &a0 [x, x]\n"
	for i := 1; i < 30; i++ {
		aliases += fmt.Sprintf("a%d: &a%d [*a%d, *a%d]\n", i, i, i-1, i-1)
	}
	texts["aliases after a kubeconfig"] = whole + aliases
	texts["many users"] = strings.Replace(whole, "users: [", "users: ["+strings.Repeat("{},", 300_000), 1)
	texts["nested"] = whole + "extensions: " + strings.Repeat("[", 400_000) + strings.Repeat("]", 400_000) + "\n"
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			path := write(t, text, nil)
			costtest.Check(t, costtest.Limit{}, func() {
				_, err := cert.LoadKubeconfig(path)
				require.Error(t, err)
				require.Less(t, len(err.Error()), 2000)
			})
		})
	}
}
