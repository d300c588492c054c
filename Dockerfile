FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -o /out/spmoe ./launcher && mkdir /out/tmp /out/runs && cp LICENSE THIRD_PARTY_NOTICES /out
FROM scratch
COPY --from=build /out /
VOLUME /runs
ENTRYPOINT ["/spmoe"]
