// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom

import "github.com/prometheus/client_golang/prometheus"

// RegisterStart is registerStart.
func RegisterStart(registry prometheus.Registerer) error { return registerStartTime(registry) }
