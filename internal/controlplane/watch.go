// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Event is one event of a watch.
type Event struct {
	Type   string          `json:"type"` // ADDED, MODIFIED, DELETED, BOOKMARK or ERROR
	Object json.RawMessage `json:"object"`
}

// Watch calls handle for each existing object at path, such as /api/v1/pods, and then for each change. It returns nil when
// ctx ends, and an error if handle fails or the connection breaks, which may happen at any time.
func (c *Client) Watch(ctx context.Context, path string, handle func(Event) error) error {
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path+separator+"watch=true", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	unlimited := *c.http
	unlimited.Timeout = 0
	resp, err := unlimited.Do(req)
	if err != nil {
		return ignoreCanceled(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return fmt.Errorf("watch %s: %w", path, errors.Join(decodeAnswer(resp.StatusCode, answer, nil), err))
	}
	for events := json.NewDecoder(resp.Body); ; {
		var e Event
		if err := events.Decode(&e); err != nil {
			return ignoreCanceled(ctx, fmt.Errorf("watch %s: %w", path, err))
		}
		if err := handle(e); err != nil {
			return err
		}
	}
}

// ignoreCanceled returns nil if ctx has ended, and err otherwise.
func ignoreCanceled(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
