#!/usr/bin/env python3
"""Checks MPIJobs against a schema, and refuses every field that the schema does not know (a cluster drops those silently).

    docs/cluster/check.py docs/cluster/mpijob.yaml
    kubectl get crd mpijobs.kubeflow.org -o yaml >crd.yaml && docs/cluster/check.py --schema crd.yaml docs/cluster/mpijob.yaml

Needs Python's yaml and jsonschema (Debian: python3-yaml, python3-jsonschema).
"""
import argparse
import pathlib
import re
import sys

import jsonschema
import yaml

# The API server knows an object's metadata itself; CRDs only say that they are an object.
METADATA = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string"},
        "namespace": {"type": "string"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}


class Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: a key that occurs twice is an error."""

    def construct_mapping(self, node, deep=False):
        keys = [k.value for k, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.YAMLError(f"{key!r} occurs twice {node.start_mark}")
        return super().construct_mapping(node, deep)


def read(file):
    with open(file) as f:
        return list(yaml.load_all(f, Loader))


def schema_of(document, version):
    """The schema itself, or that of a version in a CustomResourceDefinition."""
    if document.get("kind") != "CustomResourceDefinition":
        return document
    served = {v["name"]: v["schema"]["openAPIV3Schema"] for v in document["spec"]["versions"] if v["served"]}
    if version not in served:
        raise ValueError(f"version {version}: the CRD has {', '.join(served)}")
    return served[version]


def strict(schema):
    """JSON Schema for a CRD's schema, in which objects have no other fields than those named."""
    if isinstance(schema, list):
        return [strict(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    s = {k: v if k in ("default", "enum", "example", "required", "description") else strict(v) for k, v in schema.items() if k != "properties"}
    if "properties" in schema:  # whose keys are names of fields
        s["properties"] = {name: strict(field) for name, field in schema["properties"].items()}
    if s.pop("x-kubernetes-int-or-string", False):
        s["type"] = ["integer", "string"]
    bits = {"int32": 31, "int64": 63}.get(s.get("format"))
    if bits and "type" in s:
        s["minimum"], s["maximum"] = max(s.get("minimum", -(1 << bits)), -(1 << bits)), min(s.get("maximum", 1 << bits), (1 << bits) - 1)
    if s.pop("nullable", False) and "type" in s:
        s["type"] = [s["type"], "null"]
    if s.get("type") == "object" and not s.get("x-kubernetes-preserve-unknown-fields"):
        s.setdefault("additionalProperties", False)
    return s


def beyond_schema(job):
    """What the operator and the API server refuse although each field has a right value."""
    replicas = job["spec"]["mpiReplicaSpecs"]
    if replicas["Launcher"].get("replicas", 1) != 1:
        yield "spec.mpiReplicaSpecs.Launcher.replicas: there is one launcher"
    last = f"{job['metadata']['name']}-worker-{replicas.get('Worker', {}).get('replicas', 1) - 1}"
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", last):
        yield f"metadata.name: {last!r} is no host name (lower case letters, digits and -, 63 at most)"
    for kind, spec in replicas.items():
        pod = spec["template"]["spec"]
        volumes = {v["name"] for v in pod.get("volumes", [])}
        for c in pod["containers"] + pod.get("initContainers", []):
            for mount in c.get("volumeMounts", []):
                if mount["name"] not in volumes:
                    yield f"spec.mpiReplicaSpecs.{kind}: container {c['name']!r} mounts volume {mount['name']!r}, which the pod does not have"


def errors_of(job, document):
    if not isinstance(job, dict) or job.get("kind") != "MPIJob" or not isinstance(job.get("apiVersion"), str):
        return ["no MPIJob with an apiVersion"]
    schema = strict(schema_of(document, job["apiVersion"].rpartition("/")[2]))
    schema["properties"]["metadata"] = strict(METADATA)
    found = sorted(jsonschema.Draft7Validator(schema).iter_errors(job), key=lambda e: list(map(str, e.absolute_path)))
    return [f"{'.'.join(map(str, e.absolute_path)) or 'the job'}: {e.message[:300]}" for e in found] or list(beyond_schema(job))


def main():
    args = argparse.ArgumentParser(description="check MPIJobs against a schema")
    args.add_argument("--schema", default=pathlib.Path(__file__).with_name("mpijob.schema.yaml"), help="a schema, or a CRD (default: the one beside this program)")
    args.add_argument("files", nargs="+", metavar="FILE")
    args = args.parse_args()
    failed = False
    for file in args.files:
        try:
            document = read(args.schema)[0]
            errors = [e for job in read(file) for e in errors_of(job, document)]
        except (OSError, ValueError, yaml.YAMLError) as e:
            errors = [" ".join(str(e).split())]
        except LookupError as e:
            errors = [f"{args.schema} is neither a schema nor a CRD: {e!r}"]
        failed = failed or bool(errors)
        for e in errors:
            print(f"{file}: {e}", file=sys.stderr)
        if not errors:
            print(f"{file}: good")
    sys.exit(failed)


if __name__ == "__main__":
    main()
