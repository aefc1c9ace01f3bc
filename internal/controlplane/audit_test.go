// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/controlplane"
)

// Requests of clients are in the audit log, and a watch reports changes.
func testRequests(t *testing.T, p *controlplane.Plane) {
	began := time.Now().Truncate(time.Microsecond) // the precision of the audit log
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	admin, gone := p.Admin(), errors.New("the object is deleted")
	require.NoError(t, admin.Do(ctx, http.MethodPost, configMaps, named("ConfigMap", "watched"), nil))
	var types []string
	err := admin.Watch(ctx, configMaps+"?fieldSelector=metadata.name%3Dwatched", func(e controlplane.Event) error {
		switch types = append(types, e.Type); e.Type {
		case "ADDED":
			return admin.Do(ctx, http.MethodPatch, configMaps+"/watched", map[string]any{"data": map[string]string{"a": "b"}}, nil)
		case "MODIFIED":
			return admin.Do(ctx, http.MethodDelete, configMaps+"/watched", nil, nil)
		}
		return gone
	})
	require.ErrorIs(t, err, gone)
	require.Equal(t, []string{"ADDED", "MODIFIED", "DELETED"}, types)
	require.Error(t, admin.Do(ctx, http.MethodGet, configMaps+"/watched", nil, nil))

	ended, end := context.WithCancel(ctx)
	end()
	require.NoError(t, admin.Watch(ended, configMaps, nil))
	err = admin.Watch(ctx, "/api/v1/nothing", nil)
	require.Equal(t, http.StatusNotFound, controlplane.StatusCode(err), "%v", err)

	requests, err := p.Requests(began)
	require.NoError(t, err)
	counted := map[string]int{}
	for _, r := range requests {
		if r.User == "nodeagent-test-admin" && r.Resource == "configmaps" && r.Namespace == "default" {
			counted[fmt.Sprint(r.Verb, " ", r.Code)]++
		}
	}
	require.Equal(t, map[string]int{"create 201": 1, "watch 200": 1, "patch 200": 1, "delete 200": 1, "get 404": 1}, counted)
}
