// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build critest

// Package critest keeps the requirements of critest in go.mod: `go mod tidy` does not see them, because all files of that program are
// tests, which no tool directive can name. The lab builds it with `go test -c`.
package critest

import (
	_ "sigs.k8s.io/cri-tools/pkg/benchmark"
	_ "sigs.k8s.io/cri-tools/pkg/validate"
)
