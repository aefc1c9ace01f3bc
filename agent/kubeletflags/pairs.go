// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletflags

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
)

// splitPairs calls add for each key and value in s, such as a=1,b=2, without surrounding spaces. separator stands between key and value, here "=".
// kind is the type of the values, for errors. Empty pairs are skipped.
func splitPairs(s, separator, kind string, add func(key, value string) error) error {
	for pair := range strings.SplitSeq(s, ",") {
		if pair == "" {
			continue
		}
		if err := splitPair(pair, separator, kind, add); err != nil {
			return err
		}
	}
	return nil
}

func splitPair(pair, separator, kind string, add func(key, value string) error) error {
	key, value, found := strings.Cut(pair, separator)
	if !found {
		return fmt.Errorf("malformed pair, expect string%s%s", separator, kind)
	}
	return add(strings.TrimSpace(key), strings.TrimSpace(value))
}

// parsePairs returns a parser for a map flag. separator stands between key and value. One occurrence of the flag has one pair if between is empty,
// otherwise several pairs separated by commas.
func parsePairs(separator, between string) parser {
	return func(before any, s string) (any, error) {
		pairs := extendMap[string](before)
		add := func(key, value string) error {
			pairs[key] = value
			return nil
		}
		if between == "" {
			return pairs, splitPair(s, separator, "string", add)
		}
		return pairs, splitPairs(s, separator, "string", add)
	}
}

// parseBools parses feature gates, such as A=true,B=false.
func parseBools(before any, s string) (any, error) {
	pairs := extendMap[bool](before)
	return pairs, splitPairs(s, "=", "bool", func(key, value string) error {
		on, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("invalid value of %s: %s, err: %w", key, value, err)
		}
		pairs[key] = on
		return nil
	})
}

// parseMultimap parses HTTP headers, such as A:x,B:y. A header may have several values.
func parseMultimap(before any, s string) (any, error) {
	pairs := extendMap[[]string](before)
	return pairs, splitPairs(s, ":", "string", func(key, value string) error {
		pairs[key] = append(pairs[key], value)
		return nil
	})
}

// parseLabels parses node labels. A label without "=" has an empty value.
func parseLabels(before any, s string) (any, error) {
	labels := extendMap[string](before)
	for pair := range strings.SplitSeq(s, ",") {
		if pair != "" {
			key, value, _ := strings.Cut(pair, "=")
			labels[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return labels, nil
}

// extendMap returns a copy of before if it is a map of this type, otherwise an empty map.
func extendMap[V any](before any) map[string]V {
	pairs := map[string]V{}
	if previous, ok := before.(map[string]V); ok {
		maps.Copy(pairs, previous)
	}
	return pairs
}
