// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package apiclients tests that the generated clients of client-go work with the API server of package apiservertest. It has tests only:
// clients with types, the dynamic client, discovery, informers, leader election, events and a scheduler.
package apiclients
